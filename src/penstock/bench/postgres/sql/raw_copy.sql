-- Serves the benchmark: many rows at once.
copy raw (id, lane, body) from stdin (format binary)

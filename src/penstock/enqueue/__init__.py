"""From the call to a stored job: codec, ids, coalescing, the caller's connection, handles."""

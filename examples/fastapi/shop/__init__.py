"""A shop with an API, its tables and its jobs."""

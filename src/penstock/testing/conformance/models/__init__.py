"""Random operations on a store and on the memory broker, which must agree at every step."""

"""The seam: what every store of jobs promises, and the values that pass through it."""

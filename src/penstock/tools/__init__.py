"""Behind `penstock bench` and `penstock demo`."""

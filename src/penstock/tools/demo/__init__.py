"""The main job, shown to a stranger: `penstock demo`."""

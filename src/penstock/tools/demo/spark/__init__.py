"""The data pipeline, shown to a stranger: `penstock demo --spark`."""

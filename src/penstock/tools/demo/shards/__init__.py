"""`penstock demo --shards`: a store is split in two while its jobs run."""

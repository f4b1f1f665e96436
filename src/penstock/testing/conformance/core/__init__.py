"""What a producer and a worker need; see `penstock.broker.core`."""

"""What people and schedules do; see `penstock.broker.control`."""

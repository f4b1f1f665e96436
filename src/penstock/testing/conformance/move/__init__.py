"""What people see; see `penstock.broker.look`."""

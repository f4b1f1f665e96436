"""Frames in and out; see `penstock.broker.bulk`."""

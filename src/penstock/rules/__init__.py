"""Pause, block, limit, and order per key."""

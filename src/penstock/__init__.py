"""Penstock: durable background work for Python."""

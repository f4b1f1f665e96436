"""The messages of `proto/penstock/v1`, made by `make proto`: never changed by hand.

Both sides import them from here: the manager, and `brokers.remote`, its client.
"""

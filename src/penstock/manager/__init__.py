"""The manager: a server process that lends its store to clients on other machines, over gRPC.

It knows the broker protocol and no broker. `contract/` is made from `proto/` by `make proto`.
"""

"""REST: the verbs of the command line under `/api/v1`, in JSON, for whoever has a token.

A function here reads what was asked for, calls a verb, and returns a value; routes say the role and
the types, out of which OpenAPI is made (`openapi`).
"""

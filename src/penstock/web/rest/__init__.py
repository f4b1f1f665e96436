"""REST under `/api/v1`: the same operations as the command line, as JSON, for callers with a token.

The routes are in `table.py`; the handlers only translate between JSON and `request.store`.
"""

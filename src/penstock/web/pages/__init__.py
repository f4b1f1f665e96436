"""The pages: a module each, with a template of its name and a line in `routes`.

A page reads `request.store`, which checks roles, and hands values to its template. `cli` is the
command that shows or does the same.
"""

"""The pages: a module each, with a template of its name and a line in `routes`.

A page asks `asked.verbs`, and hands values to its template: no store, and no question of who may
do what. Each page says, as `cli`, how to see or do the same on the command line.
"""

"""What the stores in SQL tables have in common: rows as jobs, and the verbs that are no hot path.

Both keep a job in one place at a time (parcel, lease, job, history) under the same names, so the
verbs are written once, over statements that each store has in its own dialect. A store's own class
goes on from `Looking` with what it does in its own way: enqueue, claim, settle_and_claim, wait,
wake, rules_version, begin, prune and close.
"""

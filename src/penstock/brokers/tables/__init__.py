"""What the stores in SQL tables share: rows as jobs, and the verbs that are not the hot path.

Both keep a job in one table at a time (parcel, lease, job, history), with the same columns, so
these verbs are written once, over statements that each store has in its own dialect. Each verb
reads rows, decides by pure functions of `penstock.broker`, `penstock.rules`, `penstock.flows` and
`penstock.schedules`, and collects what to write in a `Change`. A store does in its own way:
enqueue, claim, wait, wake, begin, prune, stage, scan and close.
"""

"""A function and its policy: options, batch tasks, signature, retry, backfill."""

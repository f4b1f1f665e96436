-- Serves prune: no mark is set until the end of the transaction; others may prune meanwhile.
lock table penstock.mark in share mode;

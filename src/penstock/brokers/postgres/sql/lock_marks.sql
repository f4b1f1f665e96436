-- Serves set_mark and prune: until the end of the transaction nobody else sets a mark or prunes by
-- marks. Whoever only wants to see them does not wait.
lock table penstock.mark in share row exclusive mode;

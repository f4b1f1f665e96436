-- Forget what is staged of a write.
select penstock.discard(%s);

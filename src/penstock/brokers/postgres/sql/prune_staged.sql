-- Serves prune: writes that nobody added to for a day, and nobody published.
select write
  from penstock.staged
 group by write
having max(at) < %(now)s - %(staged)s;

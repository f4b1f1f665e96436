-- The write is published from now on; no row if it was before.
insert into penstock.published (write, jobs, at)
values (%(write)s, %(jobs)s, %(now)s)
    on conflict do nothing;

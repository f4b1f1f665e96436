-- The write is published from now on; no row if it was before.
insert into penstock_published (write, jobs, at)
values (:write, :jobs, :now)
    on conflict do nothing;

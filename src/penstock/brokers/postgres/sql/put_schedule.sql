-- Keep a schedule that is new; one of this name is left as it is, to be locked and looked at.
insert into penstock.schedule (name, declared) values (%(name)s, %(declared)s)
    on conflict (name) do nothing;

-- Keep a schedule that is new; one of this name is left as it is, to be locked and looked at.
insert into penstock_schedule (name, declared) values (:name, :declared)
    on conflict (name) do nothing;

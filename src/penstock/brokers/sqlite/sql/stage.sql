-- Keep jobs of one part of a write; what it holds already is left as it is.
insert into penstock_staged (write, part, id, lane, jobs, lengths, bodies, at)
values (:write, :part, :id, :lane, :jobs, :lengths, :bodies, :now)
    on conflict do nothing;

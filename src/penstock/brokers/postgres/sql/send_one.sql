-- One job that begins a run of ids: only the same id could be in its way. Without a function around
-- it, which costs as much again. Answers nothing, and writes nothing, if the id is too old.
with remembered as (
    insert into penstock.sent (id, jobs, lane)
    select $1, 1, $2
     where not exists (
        select
          from penstock.meta m
         where m.name = 'pruned_before' and $1 < penstock.first_id(m.value::double precision)
     )
    returning id
),
counted as (
    insert into penstock.tally (lane, state, minute, jobs)
    select $2, 'ready', 0, 1 from remembered
)
insert into penstock.parcel (lane, id, jobs, lengths, bodies)
select $2, r.id, 1, $3, $4 from remembered r
returning 1;

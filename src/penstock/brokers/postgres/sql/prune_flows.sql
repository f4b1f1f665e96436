-- Serves prune: flows that ended long ago, with all that belongs to them.
with old as materialized (
    select id
      from penstock.flow
     where ended_at < %(before)s
     order by ended_at
     limit %(most)s
       for update skip locked
),
nodes as (
    delete from penstock.node n using old where n.flow = old.id returning n.id
),
needs as (
    delete from penstock.need e using nodes where e.node = nodes.id
),
members as (
    delete from penstock.member m using nodes where m.node = nodes.id
),
found as (
    delete from penstock.find p using old where p.flow = old.id
)
delete from penstock.flow f using old where f.id = old.id;

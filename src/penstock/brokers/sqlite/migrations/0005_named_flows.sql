-- Flows that are found by their name, and by properties.

-- Serves flows of a name.
create index penstock_flow_name on penstock_flow (name, id) where name <> '';

-- The properties that flows are found by: a hash of the flow's name, the property and its value.
create table penstock_find (
    property blob not null check (length(property) = 16),
    flow blob not null check (length(flow) = 16),
    primary key (property, flow)
) without rowid, strict;
-- Serves delete and prune.
create index penstock_find_flow on penstock_find (flow);

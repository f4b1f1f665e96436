-- Flows that are found by their name, and by properties.

-- Serves flows of a name.
create index flow_name on penstock.flow (name, id) where name <> '';

-- The properties that flows are found by: a hash of the flow's name, the property and its value.
create table penstock.find (
    property uuid not null,
    flow uuid not null,
    primary key (property, flow)
);
-- Serves delete and prune.
create index find_flow on penstock.find (flow);

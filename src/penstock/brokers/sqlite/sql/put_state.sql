-- Serves note: the state of a flow, with what a member merged into it.
update penstock_flow set state = :state where id = :id;

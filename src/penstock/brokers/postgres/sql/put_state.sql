-- Serves note: the state of a flow, with what a member merged into it.
update penstock.flow set state = %(state)s where id = %(id)s;

-- Serves migrate sql: what follows was written for a store that stands just here.
do $$
begin
    if (select coalesce(min(value) filter (where name = 'schema'), '') || ' '
            || coalesce(min(value) filter (where name = 'post'), '')
          from penstock.meta) <> {schema} || ' ' || {post} then
        raise exception 'the store has moved on since this was printed: run penstock migrate sql again';
    end if;
end
$$;

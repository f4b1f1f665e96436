-- Serves history: the last rows of a kind, among a million attempts. Where there are rows already, the
-- parts of the index are built after the migration, while others write (parts_to_build.sql).
do $$
begin
    execute format(
        'create index history_told on %s penstock.history (kind, position) where kind <> ''attempt''',
        case when exists (select 1 from penstock.history) then 'only' else '' end
    );
end
$$;

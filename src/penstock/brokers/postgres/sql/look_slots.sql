-- Serves doctor: what replication keeps back.
select slot_name, active, greatest(age(xmin), 0) as pinned,
       pg_wal_lsn_diff(case when pg_is_in_recovery() then pg_last_wal_replay_lsn()
                            else pg_current_wal_insert_lsn() end, restart_lsn)::bigint as kept
  from pg_replication_slots
 order by slot_name;

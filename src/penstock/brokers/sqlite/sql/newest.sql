-- Serves set_mark: the last position that there ever was.
select coalesce((select seq
                   from sqlite_sequence
                  where name = 'penstock_history'), 0) as newest;

-- Serves delete: as forget_notes, of a range of jobs.
delete from penstock.note where job between %(first)s and %(last)s;

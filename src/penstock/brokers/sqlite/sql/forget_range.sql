-- Serves delete: as forget_notes, of a range of jobs.
delete from penstock_note where job between :first and :last;

-- Serves put_schedule and decide_schedule, once the row is locked.
update penstock_schedule set declared = :declared where name = :name;

-- Serves doctor.
select pg_notify('penstock_doctor', %s);

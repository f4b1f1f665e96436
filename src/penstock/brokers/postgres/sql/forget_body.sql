-- Serves delete: arguments and result go, the record that it ran stays.
update penstock.history set body = null, result = null where job = %s;

-- Serves delete: what a flow is found by.
delete from penstock.find where flow = %s;

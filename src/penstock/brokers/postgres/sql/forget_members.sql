-- Serves delete: of a flow as a whole.
delete from penstock.member
 where node in (select id from penstock.node where flow = %s);

-- Serves retry: a node that had ended is open again; whoever was freed by it stays so.
update penstock.need
   set met = false
 where need = %(need)s
   and met
   and not (select n.freed from penstock.node n where n.id = need.node)
returning node;

-- Serves retry: a node that had ended is open again; whoever was freed by it stays so.
update penstock_need
   set met = 0
 where need = :need
   and met = 1
   and not (select freed from penstock_node where id = node)
returning node;

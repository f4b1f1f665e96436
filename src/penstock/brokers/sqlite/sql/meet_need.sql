-- Serves settle: all jobs of a node ended; each who needs it has one need less, once.
update penstock_need
   set met = 1
 where need = :need
   and met = 0
returning node;

-- Serves settle: all jobs of a node ended; each who needs it has one need less, once.
update penstock.need
   set met = true
 where need = %(need)s
   and not met
returning node;

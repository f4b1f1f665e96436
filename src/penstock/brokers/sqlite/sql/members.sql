-- Serves gifts: the jobs of a node, in their order.
select first, last from penstock_member where node = ? order by place;

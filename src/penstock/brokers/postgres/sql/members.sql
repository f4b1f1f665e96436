-- Serves gifts: the jobs of a node, in their order.
select first, last from penstock.member where node = %s order by place;

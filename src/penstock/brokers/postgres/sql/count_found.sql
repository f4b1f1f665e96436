-- Serves flows: how many have a property, as far as it matters which property has fewest.
select count(*) as flows
  from (select 1 from penstock.find where property = %(property)s limit 100) as first_ones;

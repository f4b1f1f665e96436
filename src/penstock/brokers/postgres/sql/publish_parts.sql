-- Serves publish: what these parts hold becomes jobs.
select penstock.publish_parts(%s, %s::text[], %s, %s);

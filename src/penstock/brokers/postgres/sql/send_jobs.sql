-- Serves enqueue: jobs with rows of their own; see functions/enqueue_jobs.sql.
select penstock.enqueue_jobs(%s::jsonb, %s) as answer;

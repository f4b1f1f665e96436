-- Serves cancel: a running job is told; its worker hears of it when it renews.
update penstock_job set cancelled = 1 where id = ?;

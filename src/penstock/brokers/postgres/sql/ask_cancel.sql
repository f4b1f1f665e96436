-- Serves cancel: a running job is told; its worker hears of it when it renews.
update penstock.job set cancelled = true where id = %s;

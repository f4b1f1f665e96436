-- Serves enqueue: one parcel; see functions/enqueue_parcels.sql.
select penstock.enqueue_parcel($1, $2, $3, $4, $5, $6, $7, $8);

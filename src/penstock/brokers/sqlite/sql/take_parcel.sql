-- Serves claim, cancel and delete: the whole parcel is leaving.
delete from penstock_parcel where id = :id;

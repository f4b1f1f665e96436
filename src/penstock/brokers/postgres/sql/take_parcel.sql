-- Serves claim, cancel and delete: the whole parcel is leaving.
delete from penstock.parcel where lane = %(lane)s and id = %(id)s;

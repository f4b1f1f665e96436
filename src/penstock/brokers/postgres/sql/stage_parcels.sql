-- Serves stage: parcels into the lane of what is staged; half the cost of an insert.
copy penstock.parcel (lane, id, jobs, lengths, bodies) from stdin (format binary)

-- Serves doctor.
listen penstock_doctor;

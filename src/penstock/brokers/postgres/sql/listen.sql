-- Serves wait and rules_version.
listen penstock;

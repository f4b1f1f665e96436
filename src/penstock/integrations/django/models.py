"""No models: the store's tables are its own. Only apps with this module hear of a migration."""

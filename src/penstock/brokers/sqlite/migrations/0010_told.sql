-- Serves history: the last rows of a kind, among a million attempts.
create index penstock_history_told on penstock_history (kind, position) where kind <> 'attempt';

-- Serves history: the last rows of a kind, among a million attempts.
create index history_told on penstock.history (kind, position) where kind <> 'attempt';

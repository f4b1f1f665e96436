"""One attempt: a claimed job goes in, an Outcome comes out."""

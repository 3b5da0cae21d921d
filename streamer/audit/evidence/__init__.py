"""The evidence pack: what the record shows for each clause of a framework, and what it does not."""

"""Watching the risk in service: decisions and labels from the record, in order, into the states of `monitoring`."""

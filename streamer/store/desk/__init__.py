"""Where held batches wait for a person."""

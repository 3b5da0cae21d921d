"""Labels, their revisions, judgements and the review page's rows, and which labels are read."""

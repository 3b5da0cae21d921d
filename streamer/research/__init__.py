"""Studies on response clouds: evaluation, GPSO, comparisons and sampling. No worker imports it."""

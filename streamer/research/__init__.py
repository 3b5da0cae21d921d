"""Studies on response clouds: evaluation, comparisons and sampling. No worker imports it; packages/research has the rest."""

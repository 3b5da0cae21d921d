"""From the texts of a batch to one label-free score per response."""

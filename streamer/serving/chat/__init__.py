"""`POST /v1/chat/completions`: answers sampled from a gate's upstream, decided like any batch, and one of them returned."""

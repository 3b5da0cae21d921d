"""One file for each kind of severity: found here by `streamer.labels.registry`."""

"""Every setting, where its value came from, and the session file of a running `streamer dev`."""

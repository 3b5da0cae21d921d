"""What a running service reports about itself: metrics, logs, and its health over HTTP."""

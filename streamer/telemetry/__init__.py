"""What a running service tells about itself: metrics, logs, and its health over HTTP."""

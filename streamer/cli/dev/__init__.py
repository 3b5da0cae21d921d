"""`streamer dev` and `streamer demo`: the broker in this process, the services as its children, and what they show."""

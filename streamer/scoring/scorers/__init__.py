"""The scorers, one file each: whatever is in this folder is one, and `streamer.scoring.registry` finds it."""

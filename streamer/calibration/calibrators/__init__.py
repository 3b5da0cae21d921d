"""The calibrators, one file each: whatever is in this folder is one, and `streamer.calibration.registry` finds it."""

"""The scheduler of calibration runs: when each is due, the run itself, and what the gate's rule does with it."""

"""Calibration runs with their inputs, the audit sample they read, and each gate's recalibration status."""

"""Monitoring state, alerts, and the alarms that restart a gate's audit sample."""

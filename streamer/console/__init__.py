"""The console: gates, decisions, proposals, alerts and labelling in a browser, for people with accounts."""

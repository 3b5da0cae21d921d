"""Experiments on files of response clouds, each a command that prints a table, and what they share."""

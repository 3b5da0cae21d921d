"""The risk in service: `states` computes intervals and alarms, `rounds` feeds them from the record."""

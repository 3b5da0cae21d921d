"""From records to outcomes, by the newest trusted policy of each gate."""

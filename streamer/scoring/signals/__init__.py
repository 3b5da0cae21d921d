"""The signals: what can be known of an answer without a label, one number each. `signal_list` has the list of a gate."""

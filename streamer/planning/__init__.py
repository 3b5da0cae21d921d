"""How many labels a budget needs and what a gate then ships, simulated before anyone labels."""

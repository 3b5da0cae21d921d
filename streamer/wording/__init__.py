"""What gates, policies and risks are called in sentences for people: at the command line and in the console."""

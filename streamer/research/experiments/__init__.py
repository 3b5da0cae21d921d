"""Response clouds from files and from simulation, the offline twin of the stream's path, and its reports."""

"""Response clouds: their files, their simulation, and the offline twin of the stream."""

"""Response clouds: their files, their simulation, and their decisions and calibration groups offline."""

"""Child processes on this machine: start, watch, restart, stop."""

"""Stand-ins on one machine: the embedded broker and store, and the simulated fleet."""

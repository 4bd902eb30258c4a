"""The demo: a small simulated fleet and what the terminal shows of it."""

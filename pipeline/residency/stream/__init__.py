"""The state of a source's stream: its health, whether it is reached, how complete it is."""

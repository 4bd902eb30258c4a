"""Routers' choices: what is posted, how it is judged, and the log that it goes to."""

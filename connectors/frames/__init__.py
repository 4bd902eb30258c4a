"""The messages of engines as they cross ZMQ: their frames, and many of them side by side."""

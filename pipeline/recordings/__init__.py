"""Recordings of engines: write, read, play, analyse."""

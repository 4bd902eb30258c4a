"""Copies of blocks of one medium and group: collected as they come and go, then counted by compiled code."""

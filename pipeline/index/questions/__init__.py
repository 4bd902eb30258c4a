"""Questions to the index: what may be asked, read, and refused."""

"""Questions to the index: what may be asked, how it is read, and what is refused."""

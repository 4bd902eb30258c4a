"""Who has these blocks: an index over the events log, and its answers over HTTP."""

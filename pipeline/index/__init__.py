"""Which replicas hold given blocks: an index built from the events log, and its answers over HTTP."""

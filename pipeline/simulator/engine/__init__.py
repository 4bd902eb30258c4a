"""One simulated engine: blocks, evictions, and what it reports of them."""

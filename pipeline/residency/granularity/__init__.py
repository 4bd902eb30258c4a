"""Groups announced at two granularities: coarse physical blocks, and fine blocks that overlap them."""

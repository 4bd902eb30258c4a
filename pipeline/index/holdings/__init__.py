"""Which pools hold which block, and how many copies: one compiled table for all sources."""

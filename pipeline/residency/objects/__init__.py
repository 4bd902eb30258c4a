"""Blocks whose publisher reports their bytes: what they take, how they are used, what cache that needs."""

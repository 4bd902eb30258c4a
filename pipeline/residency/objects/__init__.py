"""Blocks whose publisher says their bytes: what they take, how they are used, how much cache that needs."""

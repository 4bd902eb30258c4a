"""Reference pages of the docs."""

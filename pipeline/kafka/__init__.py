"""Topics, the rights they need, and records decoded."""

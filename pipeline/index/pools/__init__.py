"""The pools of the index: what each source holds on each medium, in the shared table."""

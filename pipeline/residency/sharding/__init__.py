"""The residency records of a checkpoint: changes are distributed over the shards, and packed."""

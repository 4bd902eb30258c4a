"""Many replicas with small records: how many of them a core carries, and what falls behind first."""

"""The worker process: Faust agents, owned partitions, checkpoints."""

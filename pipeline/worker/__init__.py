"""The worker process: Faust agents, owned partitions, checkpoints.

`lifecycle` starts and stops it. An `agent` takes partitions, applies records to the state of its role
(`roles`) by `pipeline.applying`, and saves all partitions in rounds (`checkpoint`), whose rows `sink` writes.
"""

"""Checkpoints in Kafka: one transaction each, and the rounds that write them.

What they hold, and when a base is due: `pipeline.residency.checkpoint`, `pipeline.fleet.snapshot`.
"""

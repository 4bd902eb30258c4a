"""Checkpoints in Kafka: one transaction each, and the rounds that write them."""

"""Asks the broker, the store and the tables for facts, each in bounded time."""

"""Broker, store and demo on one machine."""

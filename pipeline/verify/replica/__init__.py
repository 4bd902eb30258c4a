"""The replica agent's tables recounted from the events topic."""

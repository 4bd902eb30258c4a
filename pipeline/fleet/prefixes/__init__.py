"""Prefixes that several sources hold, or fill again."""

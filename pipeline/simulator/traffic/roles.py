"""Which replicas of a fleet compute prompts, and which pull these and decode."""

from __future__ import annotations


def role_of(number: int, prefilling: int) -> str | None:
    """Return what the configuration shall say of a replica: the first `prefilling` compute prompts for the
    others. None where each does both."""
    return None if not prefilling else "prefill" if number < prefilling else "decode"


def check_roles(replicas: int, prefilling: int) -> None:
    """Raise ValueError where nobody is left to decode."""
    if prefilling >= replicas:
        raise ValueError(f"of {replicas} replicas {prefilling} prefill: some have to decode")

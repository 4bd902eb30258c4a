"""File descriptors: ZMQ ends the whole process when they run out, so they are counted beforehand."""

from __future__ import annotations

import resource

from connectors.sources import SourcesNotAdded

SOURCE_DESCRIPTORS = 6
"""A subscription takes two, its monitor two, a metrics page one, a replay at times one or two."""
OWN_DESCRIPTORS = 200
"""For Kafka, the health page, files and threads, and the replays in progress at any time."""


class DescriptorsExhausted(SourcesNotAdded):
    """The process may not open enough files for so many sources."""

    sources: int
    needed: int
    limit: int
    line = (
        "{sources} sources need {needed} file descriptors, {limit} are allowed; raise "
        "the limit (ulimit -n, LimitNOFILE) or run more connectors, each with its connector.shard"
    )


def raise_limit() -> None:
    """Raise the limit as far as the system allows this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def require(sources: int) -> None:
    """Raise DescriptorsExhausted if this many sources may need more than the limit."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = sources * SOURCE_DESCRIPTORS + OWN_DESCRIPTORS
    if limit != resource.RLIM_INFINITY and needed > limit:
        raise DescriptorsExhausted(sources, needed, limit)

"""Who holds how much of a chain, by the definition in docs/index-service.md, looked up plainly in recounts.

Every length of a beginning is tried: is every group satisfied?
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pipeline.index.answers import InstanceMatch, RankMatch
from pipeline.verify.replica.copies import Copies
from pipeline.verify.replica.source import SourceRecount
from pipeline.verify.replica.two_sizes import TwoSizes
from schemas.trust import Trust

TIERS = ("gpu", "cpu", "disk")
LAST_BLOCK, WHOLE, UNTOLD = -1, 0, -2
"""Instead of the tokens of a window: a group needs the last block only, all, or nobody says how many. Of a
group that is not named, the first that there is needs all; where there are several, nobody says."""


class Held(NamedTuple):
    """Tokens on the GPU, with the CPU, and with all below; blocks in all; and how far that can be trusted."""

    gpu: int
    cpu: int
    disk: int
    blocks: int
    trust: Trust
    upper_bound: bool
    more: int = 0
    """Tokens that there may be beyond these."""
    lower_bound: bool = False


def of_rank(match: RankMatch) -> Held:
    """Return what an answer says of one rank."""
    more = match.at_most_tokens - match.matched_tokens
    tiers = match.gpu, match.cpu, match.disk
    return Held(*tiers, match.matched_blocks, match.trust, match.upper_bound, more, match.lower_bound)


def told(instances: Mapping[str, InstanceMatch]) -> dict[tuple[str, int], Held]:
    """Return what an answer says of each source."""
    return {
        (replica, int(rank)): of_rank(match)
        for replica, instance in instances.items()
        for rank, match in instance.ranks.items()
    }


class Part(NamedTuple):
    """What is held of a chain on one medium for one group."""

    tier: str
    group: int
    there: list[int | None]
    """Tokens of each block that is held."""
    sizes: set[int]
    """Block sizes ever announced."""
    doubted: bool
    """Blocks leave unsaid, or vLLM loads them in chunks of which only a part may be there."""


def held_by_each(
    sources: Iterable[SourceRecount],
    chain: Sequence[int],
    windows: Mapping[str, Mapping[int, int]] | None = None,
) -> dict[tuple[str, int], Held]:
    """Return what each source holds of a chain, by replica and rank, those without any left out.

    `windows`: by replica, tokens that groups look back, LAST_BLOCK, WHOLE or UNTOLD.
    """
    windows_of = windows or {}
    parts = {source: _parts(source, chain, windows_of.get(source.replica, {})) for source in sources}
    told = [*zip(*(part.there for each in parts.values() for part in each), strict=True)]
    tokens = [max((size or 0 for size in of_block), default=0) for of_block in told] or [0] * len(chain)
    size = max(tokens, default=0)
    tokens = [each or size for each in tokens]
    found: dict[tuple[str, int], Held] = {}
    for source, each in parts.items():
        ends, begin, unsure, looks_back = dict[str, int](), 0, False, windows_of.get(source.replica, {})
        for tier in TIERS:
            end = _end(tier, each, begin, len(chain), size, looks_back)
            unsure |= any(
                part.doubted and any(one is not None for one in part.there[begin:end])
                for part in each
                if part.tier == tier
            )
            ends[tier] = begin = end
        most = 0
        for tier in TIERS:
            most = _end(tier, each, most, len(chain), size, looks_back, lenient=True)
        if begin or most:
            more = sum(tokens[begin : max(begin, most)])
            gpu, cpu, disk = (sum(tokens[: ends[tier]]) for tier in TIERS)
            trust = source.trust.of_all(source.media()).trust
            found[source.replica, source.dp_rank] = Held(
                gpu, cpu, disk, begin, trust, unsure, more, most > begin
            )
    return found


def _parts(source: SourceRecount, chain: Sequence[int], windows: Mapping[int, int]) -> list[Part]:
    found = []
    for (medium, group), pool in source.pools.items():
        tier = medium if medium in TIERS else "disk"
        there = [_size_of(pool, one) for one in chain]
        if isinstance(pool, TwoSizes):
            # Of two granularities the GPU is not asked where the first block decides the whole answer.
            whole = windows.get(group, WHOLE if len({other for _, other in source.pools}) == 1 else UNTOLD)
            if source.media() == {"gpu"} and whole == WHOLE and there[:1] == [None]:
                there = [None] * len(chain)
            found.append(Part(tier, group, there, {pool.coarse_size, pool.fine_size}, False))
        else:
            in_chunks = medium == "cpu" and source.life.engine in ("vllm", "") and any(pool.announced_several)
            found.append(Part(tier, group, there, {*pool.sizes}, pool.store_only or in_chunks))
    return found


def _size_of(pool: Copies | TwoSizes, block: int) -> int | None:
    """Return the tokens of a block that a pool holds, None if it does not."""
    if isinstance(pool, Copies):
        held = pool.blocks.get(block)
        return None if held is None else held.sizes[0]
    if block in pool.coarse:
        return pool.coarse_size
    return pool.fine_size if block in pool.fine else None


def _has_a_say(part: Part, parts: Iterable[Part], size: int) -> bool:
    """Tell whether blocks of the chain's size were announced here, or any of the chain's are here.

    A medium that does not say sizes has those of the GPU.
    """
    sizes = {*part.sizes}
    if 0 in sizes:
        sizes = sizes.union(*(one.sizes for one in parts if (one.tier, one.group) == ("gpu", part.group)))
    return any(one is not None for one in part.there) or (size > 0 and size in sizes)


def _end(
    tier: str,
    parts: Sequence[Part],
    begin: int,
    blocks: int,
    size: int,
    windows: Mapping[int, int],
    *,
    lenient: bool = False,
) -> int:
    """Return how far a tier goes on: the longest beginning of which every group has what it looks at.

    `begin`: how far the tiers above go. `lenient`: groups of which nobody says how far they look back need
    nothing, or where there are no others, only the last block of any of them.
    """
    on_tier = {part.group for part in parts if part.tier == tier}
    groups = {part.group for part in parts if part.tier == tier and _has_a_say(part, parts, size)}
    unnamed = WHOLE if len(on_tier) == 1 else UNTOLD
    window_of = {group: windows.get(group, unnamed) for group in groups}
    here = {
        group: [
            any(each.there[at] is not None for each in parts if (each.tier, each.group) == (tier, group))
            for at in range(blocks)
        ]
        for group in groups
    }
    if lenient:
        untold = {group for group in groups if window_of[group] == UNTOLD}
        groups -= untold
        if not groups:
            return max([begin, *(at + 1 for group in untold for at in range(blocks) if here[group][at])])

    def satisfied(group: int, length: int) -> bool:
        first = max(begin, length - _looks_back(window_of[group], size, length))
        return all(here[group][first:length])

    return max(
        (
            length
            for length in range(begin, blocks + 1)
            if groups and all(satisfied(group, length) for group in groups)
        ),
        default=begin,
    )


def _looks_back(window: int, size: int, length: int) -> int:
    """Return how many blocks before the end of a beginning a group looks at: those of window - 1 tokens."""
    if window in (WHOLE, UNTOLD):
        return length
    if window == LAST_BLOCK:
        return 1
    needed = 1
    while window > 1 and 0 < needed * size < window - 1:
        needed += 1
    return needed

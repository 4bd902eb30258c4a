"""What a fleet fills and why, counted the slow way: caches are plain dicts, causes are found by scanning.

Shares nothing with the simulator or the agents but the scenario.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from tests.support.advice.scenario import BLOCK, Router, Scenario

Block = int | tuple[str, int]
"""A hash id; of a replica with a seed of its own, no block of another's."""
AVOIDABLE = ("peer", "peer_and_evicted", "evicted", "evicted_elsewhere", "cleared")


@dataclass
class Fill:
    """A block that came into a cache."""

    at: float
    replica: int
    block: Block
    root: int
    cause: str
    needed: int | None
    """Tokens of extra cache that would have kept it; None unless it was evicted here."""


@dataclass
class Recounted:
    """All fills of a scenario, and the hits beside them, in blocks."""

    fills: list[Fill] = field(default_factory=list)
    hits: int = 0
    caches: list[OrderedDict[Block, None]] = field(default_factory=list)
    """What each replica holds in the end."""

    def tokens(self, *causes: str, replica: int | None = None, root: int | None = None) -> int:
        """Return the tokens filled for these causes, all if none is named."""
        return BLOCK * sum(
            (not causes or fill.cause in causes)
            and replica in (None, fill.replica)
            and root in (None, fill.root)
            for fill in self.fills
        )

    def curve(self, replicas: Collection[int]) -> dict[int, int]:
        """Return the tokens that so much more cache of each of them saves at least, by powers of two."""
        needed = Counter(
            _power(fill.needed) for fill in self.fills if fill.replica in replicas and fill.needed is not None
        )
        sizes = [1 << power for power in range(max(needed).bit_length())]
        return {size: BLOCK * sum(needed[each] for each in needed if each <= size) for size in sizes}

    @property
    def prefilled(self) -> int:
        """Tokens that had to be computed: what a lower tier gave back is none."""
        return self.tokens() - self.tokens("promoted")


def recount(scenario: Scenario) -> Recounted:
    """Play the scenario and count."""
    replicas = range(len(scenario.capacities))
    caches: list[OrderedDict[Block, None]] = [OrderedDict() for _ in replicas]
    tiers: list[OrderedDict[Block, None]] = [OrderedDict() for _ in replicas]
    gone: dict[Block, dict[int, tuple[str, int]]] = defaultdict(dict)
    """block -> replica -> (how it was lost there last, blocks stored there until then)."""
    stored: Counter[int] = Counter()
    found = Recounted(caches=caches)
    router = Router(scenario)
    to_come = sorted(scenario.restarts)
    for request in scenario.requests:
        while to_come and to_come[0][0] <= request.seconds:
            restarted = to_come.pop(0)[1]
            for block in caches[restarted]:
                gone[block][restarted] = ("cleared", stored[restarted])
            caches[restarted].clear()
            tiers[restarted].clear()
        held = [prefix_held(caches[each], _blocks(scenario, each, request.hash_ids)) for each in replicas]
        at = router.choose(request, held)
        cache, tier, ids = caches[at], tiers[at], _blocks(scenario, at, request.hash_ids)
        hits = held[at]
        found.hits += hits
        for block in ids[:hits]:
            del cache[block]
        while len(cache) + len(ids) > scenario.capacities[at]:
            block, _ = cache.popitem(last=False)
            gone[block][at] = ("evicted", stored[at])
        in_tier = prefix_held(tier, ids[hits:])
        for number, block in enumerate(ids[hits:]):
            others = any(block in caches[other] for other in replicas if other != at)
            how, then = gone[block].get(at, ("", 0))
            if number < in_tier:
                cause = "promoted"
            elif how == "evicted":
                cause = "peer_and_evicted" if others else "evicted"
            elif how == "cleared":
                cause = "cleared"
            elif others:
                cause = "peer"
            else:
                ways = {way for way, _ in gone[block].values()}
                cause = "evicted_elsewhere" if "evicted" in ways else "cleared" if ways else "cold"
            needed = (stored[at] - then) * BLOCK if how == "evicted" else None
            found.fills.append(Fill(request.seconds, at, block, request.hash_ids[0], cause, needed))
            gone[block].pop(at, None)
            stored[at] += 1
        for block in reversed(ids):
            cache[block] = None
        for block in ids[hits:] if scenario.tier else ():
            tier.pop(block, None)
            tier[block] = None
        while len(tier) > scenario.tier:
            tier.popitem(last=False)
    return found


def shared_copies(scenario: Scenario, at: float) -> float:
    """Return the part of all copies held just before `at` whose block another replica held, too."""
    before = tuple(request for request in scenario.requests if request.seconds < at)
    owners = Counter(block for cache in recount(replace(scenario, requests=before)).caches for block in cache)
    return sum(count for count in owners.values() if count > 1) / sum(owners.values())


def _blocks(scenario: Scenario, replica: int, ids: tuple[int, ...]) -> tuple[Block, ...]:
    seed = scenario.seeds.get(replica)
    return ids if seed is None else tuple((seed, block) for block in ids)


def prefix_held(cache: OrderedDict[Block, None], ids: tuple[Block, ...]) -> int:
    """Return how many leading blocks the cache holds."""
    held = 0
    for block in ids:
        if block not in cache:
            break
        held += 1
    return held


def _power(tokens: int) -> int:
    """Return the least power of two that is not less."""
    return 1 << max(0, tokens - 1).bit_length()

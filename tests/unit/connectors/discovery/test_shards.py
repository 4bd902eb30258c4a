from __future__ import annotations

import pytest

from connectors.discovery.shards import Shard
from connectors.discovery.static import list_sources
from schemas.discovery_settings import Replica

FLEET = list_sources(
    [
        Replica(id=f"vllm-{number}", model="m", endpoint=f"tcp://10.0.0.1:{1000 + 2 * number}", dp_ranks=2)
        for number in range(500)
    ]
)


@pytest.mark.parametrize("shards", [1, 2, 3, 7, 64])
def test_shards_share_a_fleet_so_that_each_source_is_in_exactly_one(shards: int) -> None:
    shares = [Shard.of(f"{number}/{shards}").share(FLEET) for number in range(shards)]
    assert sorted(source.key for share in shares for source in share) == sorted(s.key for s in FLEET)
    homes = {
        source.replica: {n for n, share in enumerate(shares) for s in share if s.replica == source.replica}
        for source in FLEET
    }
    assert all(len(owners) == 1 for owners in homes.values())
    # No share is far from the mean: 500 replicas, standard deviation of a fair draw.
    mean = len(FLEET) / shards
    assert all(abs(len(share) - mean) < 5 * (2 * mean) ** 0.5 for share in shares) or shards == 1


def test_who_owns_a_replica_never_changes() -> None:
    """Written down, as connectors of several versions may share a fleet while it is upgraded."""
    owners = [next(n for n in range(5) if Shard(n, 5).owns(f"vllm-{number}")) for number in range(10)]
    assert owners == [3, 4, 4, 4, 2, 1, 2, 1, 0, 1]


@pytest.mark.parametrize("setting", ["1/1", "5/2", "0/0"])
def test_a_shard_that_cannot_be_is_refused(setting: str) -> None:
    with pytest.raises(ValueError, match=f"shard {setting}"):
        Shard.of(setting)

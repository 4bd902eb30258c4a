from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from connectors.discovery.plan import Clash, merge, plan
from connectors.sources import Source, SourceKey


def _source(
    replica: str, rank: int = 0, port: int = 1, model: str = "m", replay: int | None = None
) -> Source:
    return Source(
        replica=replica,
        dp_rank=rank,
        model=model,
        tenant="t",
        hash_domain=f"{model}/s/t",
        endpoint=f"tcp://{replica}:{port + rank}",
        replay_endpoint=None if replay is None else f"tcp://{replica}:{replay}",
    )


def _by_key(*sources: Source) -> dict[SourceKey, Source]:
    return {source.key: source for source in sources}


def test_what_is_new_is_added_and_what_is_gone_removed() -> None:
    changes = plan(_by_key(_source("a"), _source("b")), _by_key(_source("b"), _source("c")))
    assert changes.removed == (_source("a"),)
    assert changes.added == (_source("c"),)
    assert changes.readdressed == ()


def test_nothing_changes_where_nothing_changed() -> None:
    assert not plan(_by_key(_source("a")), _by_key(_source("a")))


def test_another_stream_under_the_same_id_is_read_anew() -> None:
    for other in (_source("a", port=2), _source("a", model="n"), replace(_source("a"), topic="kv")):
        changes = plan(_by_key(_source("a"), _source("b")), _by_key(other, _source("b")))
        assert (changes.removed, changes.added) == ((_source("a"),), (other,))


def test_another_life_under_the_same_id_ends_the_one_before_as_restarted() -> None:
    before, after = replace(_source("a"), session_name="u1"), replace(_source("a"), session_name="u2")
    moved = replace(_source("b", port=2), session_name="u1")
    changes = plan(_by_key(before, replace(_source("b"), session_name="u1")), _by_key(after, moved))
    assert changes.restarted == (before,)
    assert changes.removed == (replace(_source("b"), session_name="u1"),)
    assert changes.added == (after, moved)


def test_another_replay_or_metrics_address_or_role_leaves_the_stream_alone() -> None:
    for other in (
        _source("a", replay=9),
        replace(_source("a"), metrics_url="http://a"),
        replace(_source("a"), role="decode"),
    ):
        changes = plan(_by_key(_source("a")), _by_key(other))
        assert changes.readdressed == (other,)
        assert not changes.removed
        assert not changes.added


SOURCES = st.builds(
    _source, st.sampled_from("abc"), st.integers(0, 1), st.integers(1, 2), st.sampled_from("mn"), st.none()
)


@given(st.lists(SOURCES), st.lists(SOURCES))
def test_carrying_out_a_plan_gives_what_is_wanted(before: list[Source], after: list[Source]) -> None:
    present, wanted = _by_key(*before), _by_key(*after)
    changes = plan(present, wanted)
    result = dict(present)
    for source in changes.removed:
        assert result.pop(source.key) == source
    for source in (*changes.added, *changes.readdressed):
        assert (source.key in result) == (source in changes.readdressed)
        result[source.key] = source
    assert result == wanted


def test_the_first_origin_has_a_replica_with_all_its_ranks() -> None:
    wanted, clashes = merge(
        {
            "replicas": [_source("a")],
            "dns": [_source("a", 0, port=5), _source("a", 1, port=5), _source("b")],
        }
    )
    assert wanted == _by_key(_source("a"), _source("b"))
    assert clashes == [Clash("a", "dns", "id_taken", "replicas")]


def test_an_endpoint_is_not_read_twice() -> None:
    other = replace(_source("b"), endpoint=_source("a").endpoint)
    wanted, clashes = merge({"replicas": [_source("a")], "dns": [other]})
    assert wanted == _by_key(_source("a"))
    assert clashes == [Clash("b", "dns", "endpoint_taken", "replicas")]


def test_engines_that_connect_share_an_endpoint() -> None:
    sources = [replace(_source(name), endpoint="tcp://*:5557") for name in "ab"]
    assert merge({"bind": sources}) == (_by_key(*sources), [])

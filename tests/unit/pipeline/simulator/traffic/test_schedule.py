"""What happens to a simulated fleet while it runs: how it is written down, and that it happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
import zmq

from pipeline.simulator.addresses import AddressPlan
from pipeline.simulator.engine.settings import EngineSettings
from pipeline.simulator.fleet import Fleet, FleetSettings
from pipeline.simulator.traffic.schedule import Lost, Rerouting, Restart, ScheduleError, scheduled
from pipeline.simulator.traffic.workload import WorkloadSettings


@pytest.mark.parametrize(
    ("text", "seconds", "change"),
    [
        ("60:routing=round-robin", 60.0, Rerouting("round-robin")),
        ("0.5:restart=1", 0.5, Restart(1)),
        ("90:drop=0,30", 90.0, Lost(0, 30, "drop")),
        ("90:lose=1,2", 90.0, Lost(1, 2, "lose")),
    ],
)
def test_a_change_is_read_from_its_text(text: str, seconds: float, change: object) -> None:
    read = scheduled(text, replicas=2)
    assert (read.seconds, read.change, read.text) == (seconds, change, text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("restart=1", "SECONDS:ACTION=WHAT"),
        ("1:routing=fast", "the routings are round-robin, sticky, random"),
        ("1:restart=2", "the replicas are 0 to 1"),
        ("1:restart=" + "9" * 5000, "the replicas are 0 to 1"),
        ("1:restart=²", "SECONDS:ACTION=WHAT"),
        ("1:drop=0,²", "SECONDS:ACTION=WHAT"),
        ("1:drop=0," + "9" * 5000, "SECONDS:ACTION=WHAT"),
        ("1:drop=0", "the actions are"),
        ("1:burn=0", "the actions are"),
    ],
)
def test_what_cannot_happen_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        scheduled(text, replicas=2)
    assert caught.value.text == text
    assert reason in str(caught.value)


@pytest.fixture
def opened() -> Iterator[Callable[..., Fleet]]:
    fleets: list[Fleet] = []

    def make(
        changes: tuple[str, ...], tell: Callable[[str], None], rate: float = 20.0, **settings: Any
    ) -> Fleet:
        fleets.append(
            Fleet(
                FleetSettings(
                    replicas=2,
                    engine=EngineSettings(decode_tokens=8),
                    workload=WorkloadSettings(seed=5, rate=rate, max_prompt_tokens=1000),
                    addresses=AddressPlan(base_port=0, metrics_port=None),
                    schedule=tuple(scheduled(change, 2) for change in changes),
                    **settings,
                ),
                tell,
            )
        )
        return fleets[-1]

    yield make
    for fleet in fleets:
        fleet.close()


def received(fleet: Fleet, number: int, steps: int) -> list[int]:
    """Sequence numbers that a subscriber of a replica gets while the fleet takes so many steps of 0.1 s."""
    with zmq.Context() as context, closing(context.socket(zmq.SUB)) as socket:
        socket.setsockopt(zmq.SUBSCRIBE, b"")
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(fleet.sources[number].publisher.endpoint)
        assert fleet.sources[number].publisher.wait_subscribers(1, 60)
        for step in range(steps):
            fleet.advance(0.1, 1e9 + step / 10)
            # After a restart it connects again in its own time.
            assert fleet.sources[number].publisher.wait_subscribers(1, 60)
        found: list[int] = []
        last = fleet.sources[number].publisher.last_sequence
        # A life that ended meanwhile may have had the number, too; nothing comes after the last one.
        while found[-1:] != [last] or socket.poll(200):
            assert socket.poll(60_000), (found, last)
            found.append(int.from_bytes(socket.recv_multipart()[1], "big"))
        return found


def test_a_restart_begins_a_life_and_is_told_when_it_happens(opened: Callable[..., Fleet]) -> None:
    told: list[str] = []
    fleet = opened(("3:restart=1",), told.append)
    sequences = received(fleet, 1, 29)
    assert told == []
    assert sequences == list(range(len(sequences)))
    # The subscriber may connect again a little after the new life began.
    assert received(fleet, 1, 20)[0] < sequences[-1]
    assert told == ["3:restart=1"]
    assert [len(source.truth()["lives"]) for source in fleet.sources] == [1, 2]


@pytest.mark.parametrize("loss", ["drop", "lose"])
def test_lost_batches_do_not_arrive_and_replay_has_them_or_not(
    opened: Callable[..., Fleet], loss: str
) -> None:
    fleet = opened((f"1:{loss}=0,4",), lambda _: None)
    sequences = received(fleet, 0, 40)
    missing = sorted(set(range(sequences[-1])) - set(sequences))
    assert len(missing) == 4
    assert missing == list(range(missing[0], missing[0] + 4))
    publisher = fleet.sources[0].publisher
    with zmq.Context() as context, closing(context.socket(zmq.DEALER)) as dealer:
        dealer.setsockopt(zmq.LINGER, 0)
        dealer.connect(publisher.replay_endpoint or "")
        dealer.send_multipart((b"", missing[0].to_bytes(8, "big")))
        assert dealer.poll(60_000)
        first = int.from_bytes(dealer.recv_multipart()[-2], "big")
    assert first == (missing[0] if loss == "drop" else missing[-1] + 1)


def test_another_routing_moves_conversations(opened: Callable[..., Fleet]) -> None:
    def hits(changes: tuple[str, ...]) -> float:
        fleet = opened(changes, lambda _: None, rate=5.0, routing="sticky")
        for step in range(400):
            fleet.advance(0.1, 1e9 + step / 10)
        counters = [source.engine.counters for source in fleet.sources]
        return sum(each.hits for each in counters) / sum(each.queries for each in counters)

    assert hits(("5:routing=round-robin",)) < hits(()) - 0.05


def test_replicas_have_the_sizes_they_were_dealt(opened: Callable[..., Fleet]) -> None:
    fleet = opened((), lambda _: None, blocks=(400, 200))
    assert [source.engine.settings.num_blocks for source in fleet.sources] == [400, 200]

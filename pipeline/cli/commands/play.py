"""`kvlens play`: a recording acts as the engine it came from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, cast

import click

from pipeline.cli.failures import Failure, reading, stopped_by_signals
from pipeline.cli.groups import examples
from pipeline.cli.numbers import Amount, Whole
from pipeline.cli.progress_line import ProgressLine
from pipeline.recordings.format import Frame, Recording
from schemas.settings import rank_endpoint

_TCP = re.compile(r"tcp://.+:(\d+)")


@click.command(
    epilog=examples("kvlens play engine.kvrec", "kvlens play engine.kvrec --speed max --wait-subscribers 0")
)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--endpoint", default="tcp://127.0.0.1:5557", show_default=True, help="Where to publish.")
@click.option(
    "--replay-endpoint", metavar="ENDPOINT", help="Where to answer replay requests; without it, nowhere."
)
@click.option(
    "--replay-frames",
    type=click.Choice(("2", "3")),
    default="3",
    show_default=True,
    help="Frames of a replayed batch: seq and payload (vLLM to 0.25), or topic, seq and payload.",
)
@click.option(
    "--speed",
    default="1",
    show_default=True,
    metavar="FACTOR|max",
    help="Multiple of the recorded pace; max: as fast as subscribers take it.",
)
@click.option(
    "--wait-subscribers",
    type=Whole(0),
    default=1,
    show_default=True,
    help="Subscribers to wait for before the first batch.",
)
@click.option("--source", type=Whole(0), help="Play only this source of the recording, from 0.")
@click.option(
    "--linger",
    type=Amount(0),
    default=0.0,
    show_default=True,
    help="Seconds to keep answering replay requests after the last batch.",
)
def play(
    file: Path,
    endpoint: str,
    replay_endpoint: str | None,
    replay_frames: str,
    speed: str,
    wait_subscribers: int,
    source: int | None,
    linger: float,
) -> None:
    """Publish a recording as the engine it came from did.

    Topics, sequence numbers, payloads and pace are those of the recording.
    If the recording has several sources, source k uses port + k, like DP rank k of an engine.
    """
    import zmq

    from pipeline.recordings.player import EngineSockets, Player

    factor = _factor(speed)
    with reading(file):
        opened = Recording(file)
    with opened as recording:
        if source is not None and source >= len(recording.sources):
            raise click.UsageError(
                f"{file} has {len(recording.sources)} sources, counted from 0, and no source {source}"
            )
        numbers = range(len(recording.sources)) if source is None else (source,)
        ranks = {number: rank for rank, number in enumerate(numbers)}
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        engines: list[EngineSockets] = []
        try:
            for rank in ranks.values():
                engines.append(
                    EngineSockets(
                        context,
                        _rank_endpoint(endpoint, rank),
                        None if replay_endpoint is None else _rank_endpoint(replay_endpoint, rank),
                        cast(Literal[2, 3], int(replay_frames)),
                    )
                )
                click.echo(_line(engines[-1].endpoint, engines[-1].replay_endpoint))
            player = Player(engines)
            with stopped_by_signals(player.stop), ProgressLine(logged=True) as progress:
                if wait_subscribers:
                    progress.step("waiting for a subscriber; --wait-subscribers 0 plays at once")
                    player.wait_subscribers(wait_subscribers)
                progress.step("playing")
                frames = _counted(_frames(recording, ranks), progress)
                published = player.play(frames, factor)
                if linger:
                    progress.step("answering replay requests")
                    player.linger(linger)
        except OSError as error:
            raise Failure(str(error.strerror)) from error
        finally:
            for engine in engines:
                engine.close()
            context.term()
        click.echo(f"played {published} batches{'; its last frame is torn' if recording.torn else ''}")


def _frames(recording: Recording, ranks: dict[int, int]) -> Iterator[tuple[int, Frame]]:
    for frame in recording.frames():
        if frame.source in ranks:
            yield ranks[frame.source], frame


def _counted(frames: Iterator[tuple[int, Frame]], progress: ProgressLine) -> Iterator[tuple[int, Frame]]:
    first: float | None = None
    for number, (rank, frame) in enumerate(frames, 1):
        first = frame.received_at if first is None else first
        progress.step(f"playing: batch {number:,}, {frame.received_at - first:.0f} s of the recording")
        yield rank, frame


def _rank_endpoint(endpoint: str, rank: int) -> str:
    tcp = _TCP.fullmatch(endpoint)
    # libzmq would take a port above 65535 modulo 65536.
    if (tcp is None and rank > 0) or (tcp is not None and int(tcp[1]) + rank > 65535):
        raise click.UsageError(f"{endpoint} gives source {rank} no address; expected tcp://host:port")
    return rank_endpoint(endpoint, rank)


def _factor(speed: str) -> float | None:
    """Return the multiple of the recorded pace; None for max."""
    if speed == "max":
        return None
    try:
        factor = float(speed)
    except ValueError:
        factor = 0.0
    if not 0 < factor < float("inf"):
        raise click.BadParameter("expected a number above 0, or max", param_hint="--speed")
    return factor


def _line(endpoint: str, replay: str | None) -> str:
    return f"publishing on {endpoint}" + (f", replay on {replay}" if replay else "")

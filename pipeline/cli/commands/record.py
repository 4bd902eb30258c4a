"""`kvlens record`: the frames of engines into a file."""

from __future__ import annotations

import re
from pathlib import Path

import click
from click.core import ParameterSource

from pipeline.cli.failures import Failure, stopped_by_signals
from pipeline.cli.groups import examples
from pipeline.cli.numbers import Amount, Whole
from pipeline.cli.options import config_option, load_settings
from pipeline.cli.progress_line import ProgressLine
from pipeline.recordings.format import Frame, RecordedSource, RecordingWriter
from schemas.settings import rank_endpoint

_ENDPOINT = re.compile(r"tcp://.+:\d+|ipc://.+")


@click.command(
    epilog=examples(
        "kvlens record engine.kvrec --endpoint tcp://10.0.0.11:5557 --seconds 60",
        "kvlens record fleet.kvrec --config kvlens.toml",
    )
)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--endpoint", "endpoints", multiple=True, metavar="tcp://HOST:PORT", help="Engine; repeatable.")
@click.option("--topic", default="", help="With --endpoint: ZMQ subscription prefix; all topics by default.")
@click.option("--seconds", type=Amount(0, min_open=True), help="Stop after this long.")
@click.option("--batches", type=Whole(1), help="Stop after this many batches.")
@config_option
def record(
    file: Path,
    endpoints: tuple[str, ...],
    topic: str,
    seconds: float | None,
    batches: int | None,
    config: Path | None,
) -> None:
    """Write what engines publish to FILE.

    It records the engines given by --endpoint or else the configured ones,
    until interrupted.

    Frames hold the token ids of prompts and outputs, so the recording is as confidential as they are. Only
    the owner can read FILE, and record never overwrites a file.
    """
    if topic and not endpoints:
        raise click.UsageError("--topic is for --endpoint; configured engines have their own")
    sources, topics = _given(endpoints, topic) if endpoints else _configured(config)
    from pipeline.recordings.recorder import Recorder

    counts = [0] * len(sources)
    try:
        recorder = Recorder([source.endpoint for source in sources], topics)
        try:
            writer = RecordingWriter(file, tuple(sources))
        except FileExistsError:
            raise Failure(f"{file} exists; a recording is never overwritten, choose another name") from None
        with writer, stopped_by_signals(recorder.stop), ProgressLine() as progress:
            progress.step("recording: no batch yet")

            def turned() -> None:
                writer.flush()
                if any(counts):
                    progress.step(f"recording: {sum(counts):,} batches")

            def write(frame: Frame) -> None:
                writer.write(frame)
                counts[frame.source] += 1

            recorder.run(write, turned, batches=batches, seconds=seconds)
        recorder.close()
    except OSError as error:
        raise Failure(f"{error.filename or file}: {error.strerror or error}") from error
    for source, count in zip(sources, counts, strict=True):
        click.echo(f"{source.endpoint}: {count} batches")
    if not any(counts):
        raise Failure(
            f"no engine published anything, so {file} is empty; check the endpoints, and that the engines "
            "publish events and get requests"
        )


def _given(endpoints: tuple[str, ...], topic: str) -> tuple[list[RecordedSource], list[str]]:
    # The variable may be set for all commands.
    config_from = click.get_current_context().get_parameter_source("config")
    if config_from is ParameterSource.COMMANDLINE:
        raise click.UsageError("give --endpoint or --config: with the one, the other would not be read")
    for endpoint in endpoints:
        if not _ENDPOINT.fullmatch(endpoint):
            raise click.BadParameter(f"expected tcp://HOST:PORT, got {endpoint}", param_hint="--endpoint")
    return [RecordedSource(endpoint=endpoint) for endpoint in endpoints], [topic] * len(endpoints)


def _configured(config: Path | None) -> tuple[list[RecordedSource], list[str]]:
    replicas = load_settings(config).settings.replicas
    if not replicas:
        raise click.UsageError("no engine to record; give --endpoint, or a --config with [[replicas]]")
    sources = [
        RecordedSource(
            replica=replica.id,
            dp_rank=rank,
            model=replica.model,
            tenant=replica.tenant,
            hash_scheme=replica.hash_scheme,
            endpoint=rank_endpoint(replica.endpoint, rank),
            role=replica.role,
        )
        for replica in replicas
        for rank in replica.ranks
    ]
    return sources, [replica.topic for replica in replicas for _ in replica.ranks]

"""`kvlens simulate`: a fleet of engines that exist only as their event streams."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from pipeline.cli.failures import stopped_by_signals
from pipeline.cli.groups import examples
from pipeline.cli.numbers import Amount, Whole
from pipeline.simulator.addresses import AddressPlan
from pipeline.simulator.config_file import replicas_toml
from pipeline.simulator.engine.block_pool import PoolExhaustedError
from pipeline.simulator.engine.settings import EngineSettings
from pipeline.simulator.fleet import Fleet, FleetSettings
from pipeline.simulator.trace_fleet import TraceFleet, TraceFleetSettings
from pipeline.simulator.traffic.routing import ROUTINGS
from pipeline.simulator.traffic.schedule import scheduled
from pipeline.simulator.traffic.workload import WorkloadSettings
from pipeline.simulator.wire.eras import DEFAULT_ERA, ERAS
from pipeline.simulator.wire.hashing import HASH_FORMS
from pipeline.traces.reading import read_trace
from pipeline.traces.times import UNITS
from pipeline.traces.trace import TraceError
from schemas.events import LATEST


@click.command(
    context_settings={"show_default": True},
    epilog=examples(
        "kvlens simulate --replicas 2 --write-config simulated.toml",
        "kvlens simulate --at 60:restart=0 --duration 120",
        "kvlens simulate --replicas 3 --prefill 1 --write-config pair.toml",
        "kvlens simulate --trace conversation.jsonl.gz --speed 10",
    ),
)
@click.option("--replicas", type=Whole(1), default=4, help="Engine replicas.")
@click.option("--dp-ranks", type=Whole(1), default=1, help="DP ranks of each replica.")
@click.option(
    "--era",
    "eras",
    type=click.Choice(tuple(ERAS)),
    multiple=True,
    default=(DEFAULT_ERA,),
    metavar="NAME",
    help=f"Wire format; repeat it for a mixed fleet; replicas take them in turn. One of: {', '.join(ERAS)}.",
)
@click.option(
    "--hash-form", type=click.Choice(HASH_FORMS), help="Form of the block hashes; by default the era's."
)
@click.option("--model", default="simulated", help="Model name.")
@click.option("--seed", default=0, help="Equal seeds give equal traffic and equal events.")
@click.option("--rate", type=Amount(0, min_open=True), default=4.0, help="Requests/s of the fleet.")
@click.option(
    "--routing", type=click.Choice(ROUTINGS), default="round-robin", help="How requests are routed."
)
@click.option(
    "--blocks",
    type=Whole(2),
    multiple=True,
    default=(1200,),
    help="GPU blocks per rank; repeat it for different sizes; replicas take them in turn.",
)
@click.option("--block-size", type=Whole(1), default=16, help="Tokens per block.")
@click.option("--cpu-blocks", type=Whole(0), default=0, help="Blocks of the CPU tier; 0 for none.")
@click.option(
    "--lora-share", type=Amount(0, 1), default=0.0, help="Share of conversations with a LoRA adapter."
)
@click.option(
    "--hybrid",
    type=Whole(0),
    default=0,
    help="How many replicas are hybrid Mamba and attention engines, which announce two granularities.",
)
@click.option(
    "--prefill",
    type=Whole(0),
    default=0,
    help="How many replicas compute prompts only; the others pull these and decode (no CPU tier).",
)
@click.option("--hybrid-blocks", type=Whole(2), default=64, help="Blocks of 2176 tokens in a hybrid.")
@click.option(
    "--random-hash-seeds", is_flag=True, help="Each rank uses its own random hash seed (no PYTHONHASHSEED)."
)
@click.option("--system-prompt-tokens", type=Whole(1), default=512)
@click.option("--user-tokens", type=Whole(1), default=120, help="Mean new tokens per turn.")
@click.option("--output-tokens", type=Whole(1), default=80, help="Mean generated tokens per turn.")
@click.option("--max-prompt-tokens", type=Whole(1), default=6000, help="Conversations end here.")
@click.option("--steps-per-second", type=Amount(0, min_open=True), default=20.0, help="Engine steps.")
@click.option(
    "--at",
    "changes",
    multiple=True,
    metavar="SECONDS:CHANGE",
    help="Change something after this much traffic; repeatable. CHANGE is one of routing=NAME, "
    "restart=REPLICA, drop=REPLICA,BATCHES (lost on the way, replay has them), lose=REPLICA,BATCHES (nobody "
    "has them); REPLICA counts from 0.",
)
@click.option("--duration", type=Amount(0, min_open=True), help="Seconds; by default until interrupted.")
@click.option("--host", default="127.0.0.1", help="Address to listen on.")
@click.option("--base-port", type=Whole(0, 65535), default=5557, help="First PUB port; 0 picks free ones.")
@click.option(
    "--replay-base-port",
    type=Whole(0, 65535),
    help="First replay port; by default 100 or more above --base-port.",
)
@click.option(
    "--metrics-port", type=Whole(-1, 65535), default=8000, help="Port of /<replica>/metrics; -1 for none."
)
@click.option("--topic", default="", help="ZMQ topic.")
@click.option(
    "--wait-subscribers", type=Amount(0), metavar="SECONDS", help="Wait this long for subscribers first."
)
@click.option(
    "--truth-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the engines' truth here at the end; keeps a row for each batch until then.",
)
@click.option(
    "--write-config",
    type=click.Path(dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Write the matching [[replicas]] of a kvlens.toml; - prints it.",
)
@click.option(
    "--trace",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Play a request trace, in a form that `kvlens whatif` reads, instead of generated traffic.",
)
@click.option(
    "--budget", type=Whole(1), help="Trace: blocks (one hash id each) a replica; by default endless."
)
@click.option(
    "--trace-block-size", type=Whole(1), help="Trace: tokens of one hash id, if the file does not tell."
)
@click.option(
    "--trace-time-unit",
    type=click.Choice(tuple(UNITS)),
    help="Trace: unit of its times, if the file does not tell.",
)
@click.option(
    "--trace-base", type=Amount(0, LATEST), help="Trace: epoch seconds of its time 0; by default it ends now."
)
@click.option(
    "--speed", type=Amount(0, min_open=True), help="Trace: multiple of real time; by default no pauses."
)
@click.option("--stay", is_flag=True, help="Trace: keep answering replays after its end, until interrupted.")
def simulate(**options: Any) -> None:
    """Run simulated engines that publish KV-cache events as real ones do.

    Every replica has a PUB and a replay ROUTER socket for each DP rank, and a /metrics page. The cache
    behaves like vLLM's; traffic is multi-turn chats over shared system prompts, or a recorded trace.
    """
    try:
        if options["trace"] is None:
            _chat(options)
        else:
            _trace(options)
    except OSError as error:
        reason = error.strerror or str(error)
        raise click.ClickException(f"{error.filename}: {reason}" if error.filename else reason) from error
    except (ValueError, TraceError, PoolExhaustedError) as error:
        raise click.ClickException(str(error)) from error


def _chat(options: dict[str, Any]) -> None:
    fleet = Fleet(
        FleetSettings(
            **_shared(options),
            dp_ranks=options["dp_ranks"],
            engine=EngineSettings(block_size=options["block_size"], cpu_blocks=options["cpu_blocks"]),
            blocks=options["blocks"],
            hybrid_replicas=options["hybrid"],
            hybrid_blocks=options["hybrid_blocks"],
            random_hash_seeds=options["random_hash_seeds"],
            workload=WorkloadSettings(
                seed=options["seed"],
                rate=options["rate"],
                system_prompt_tokens=options["system_prompt_tokens"],
                mean_user_tokens=options["user_tokens"],
                mean_output_tokens=options["output_tokens"],
                max_prompt_tokens=options["max_prompt_tokens"],
                lora_share=options["lora_share"],
            ),
            schedule=tuple(scheduled(text, options["replicas"]) for text in options["changes"]),
            steps_per_second=options["steps_per_second"],
        ),
        click.echo,
    )
    try:
        _begin(fleet, options)
        with stopped_by_signals(fleet.stop):
            fleet.run(options["duration"])
            fleet.write_truth()
    finally:
        fleet.close()
    batches = sum(source.publisher.published for source in fleet.sources)
    click.echo(f"stopped: {batches} batches from {len(fleet.sources)} sources")


def _trace(options: dict[str, Any]) -> None:
    trace = read_trace(options["trace"], options["trace_block_size"], options["trace_time_unit"])
    if trace.times is None and options["speed"] is not None:
        raise click.ClickException(f"{options['trace']}: the trace has no times, so --speed cannot be kept")
    click.echo(
        f"trace: blocks of {trace.block_size} tokens (from {trace.block_size_from}), "
        f"times {trace.times or 'unknown'}",
        err=True,
    )
    fleet = TraceFleet(
        TraceFleetSettings(
            **_shared(options),
            block_size=trace.block_size,
            budget=options["budget"],
            seed=options["seed"],
            base_time=options["trace_base"],
            speed=options["speed"],
        )
    )
    try:
        _begin(fleet, options)
        with stopped_by_signals(fleet.stop):
            fleet.play(trace.requests)
            fleet.write_truth()
            blocks, tokens = fleet.hit_rates()
            click.echo(
                f"played: {fleet.played()} requests, hits {blocks:.2%} of blocks, {tokens:.2%} of tokens"
            )
            if options["stay"]:
                fleet.wait()
    finally:
        fleet.close()


def _next_step(written: str | None, endpoint: str) -> str:
    """Return what to do in another terminal while the engines publish."""
    if written is not None and written != "-":
        return f"`kvlens up --config {written}` reads these engines"
    return (
        f"`kvlens record engine.kvrec --endpoint {endpoint}` records one of them; "
        "with --write-config FILE, `kvlens up --config FILE` reads all"
    )


def _shared(options: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that both kinds of fleets have."""
    same = ("replicas", "model", "eras", "hash_form", "routing", "topic")
    metrics_port = None if options["metrics_port"] < 0 else options["metrics_port"]
    ports = (options["base_port"], options["replay_base_port"], metrics_port)
    return {
        **{name: options[name] for name in same},
        "prefill_replicas": options["prefill"],
        "addresses": AddressPlan(options["host"], *ports),
        "truth_directory": options["truth_dir"],
    }


def _begin(fleet: Fleet | TraceFleet, options: dict[str, Any]) -> None:
    """Announce the addresses, and wait for readers if asked to."""
    addresses = fleet.addresses()
    if options["write_config"]:
        with click.open_file(options["write_config"], "w") as config:
            config.write(replicas_toml(addresses))
    click.echo("ready " + json.dumps([address.endpoint for address in addresses]))
    click.echo(_next_step(options["write_config"], addresses[0].endpoint), err=True)
    seconds = options["wait_subscribers"]
    if seconds is not None and not fleet.wait_subscribers(seconds):
        raise click.ClickException(f"not every source had a subscriber within {seconds:g} s")

"""The `kvlens` command: its subcommands and their modules."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click

from pipeline.cli import failures
from pipeline.cli.groups import Group, examples

COMMANDS = {
    "demo": "See kvlens work: simulated engines, Kafka and ClickHouse, all on this machine.",
    "up": "Run everything for your engines on this machine.",
    "connect": "Read the KV-cache events of your engines into Kafka.",
    "work": "Turn the Kafka log into ClickHouse tables.",
    "doctor": "Check the installation: what is wrong, and what to do about it.",
    "advise": "Show what to do first, and what it is worth.",
    "serve": "Show the boards in a browser, without Grafana.",
    "index": "Answer which replica holds how much of a prompt.",
    "hash": "Print the block hashes of token ids, as an engine computes them.",
    "at": "Show which replica held what at a time in the past.",
    "verify": "Check the tables: compute each again from the log.",
    "state": "Compute the agents' state again from the log.",
    "migrate": "Create or upgrade the ClickHouse tables.",
    "topics": "Create or list the Kafka topics.",
    "simulate": "Run engines without a GPU, which publish events as real ones do.",
    "record": "Write what engines publish to a file.",
    "play": "Publish a recording as the engine it came from did.",
    "analyze": "Show what the engines of a recording held.",
    "whatif": "Show what other caches, replicas or routing would change.",
    "config": "Show the settings in effect.",
    "version": "Print the version.",
}
"""{name of a command, and of its module: its line in the overview}"""


def module_of(command: str) -> str:
    """Return the name of the module that has a command under its name."""
    return f"pipeline.cli.commands.{command}"


class _Subcommands(Group):
    """Imports a subcommand when it is used: `kvlens version` must not load a stream processor."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        # structlog imports rich where it is installed: a tenth of a second for tracebacks in colours.
        with _unseen("rich"):
            command: click.Command = getattr(import_module(module_of(cmd_name)), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@contextmanager
def _unseen(name: str) -> Iterator[None]:
    """Make a module look not installed to whatever is imported meanwhile, unless it is loaded already."""
    modules: dict[str, Any] = sys.modules
    if name in modules:
        yield
        return
    modules[name] = None
    try:
        yield
    finally:
        del modules[name]


def _print_version(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        from pipeline.cli.commands.version import installed_version

        click.echo(f"kvlens {installed_version()}")
        context.exit()


@click.group(
    cls=_Subcommands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples(
        "kvlens demo                           # see it work, without an engine",
        "kvlens up --config kvlens.toml        # read your engines, on this machine",
        "kvlens doctor --data-dir .kvlens/up   # is everything working?",
        'eval "$(_KVLENS_COMPLETE=bash_source kvlens)"   # complete names in bash',
    ),
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version.",
)
def kvlens() -> None:
    """Show what the KV caches of your inference engines hold, lose and fill again, and why.

    Exit codes: 0 done, 1 it could not, 2 wrong command line or settings, 130 interrupted. doctor, verify and
    work have more; their help says which.
    """


def main() -> None:
    """Entry point of the console script."""
    failures.run(kvlens)


if __name__ == "__main__":
    main()

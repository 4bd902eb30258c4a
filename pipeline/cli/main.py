"""The `kvlens` command: its subcommands and their modules."""

from __future__ import annotations

from importlib import import_module

import click

from pipeline.cli import failures

COMMANDS = {
    "demo": (
        "pipeline.cli.commands.demo",
        "Run everything on this machine with a small simulated fleet, shown live.",
    ),
    "up": (
        "pipeline.cli.commands.up",
        "Run connector and worker for the configured engines, under one supervisor.",
    ),
    "connect": ("pipeline.cli.commands.connect", "Publish the engines' event streams to Kafka."),
    "work": ("pipeline.cli.commands.work", "Turn the Kafka log into ClickHouse tables."),
    "doctor": ("pipeline.cli.commands.doctor", "Say what is wrong with a running fleet, and what to do."),
    "serve": ("pipeline.cli.commands.serve", "Show the boards in a browser, without Grafana."),
    "verify": ("pipeline.cli.commands.verify", "Check the tables against a recount of the log."),
    "state": ("pipeline.cli.commands.state", "Compute the agents' state again from the log."),
    "migrate": ("pipeline.cli.commands.migrate", "Create or upgrade the ClickHouse tables."),
    "topics": ("pipeline.cli.commands.topics", "Create or list the Kafka topics."),
    "simulate": (
        "pipeline.cli.commands.simulate",
        "Run simulated engines that publish events as real ones do.",
    ),
    "record": ("pipeline.cli.commands.record", "Write the frames that engines publish to a file."),
    "play": ("pipeline.cli.commands.play", "Publish a recording like the engine it came from."),
    "analyze": ("pipeline.cli.commands.analyze", "Show what a recording's engines held, offline."),
    "whatif": (
        "pipeline.cli.commands.whatif",
        "Play the same traffic with other replicas, caches or routing.",
    ),
    "config": ("pipeline.cli.commands.config", "Show the effective settings."),
    "version": ("pipeline.cli.commands.version", "Print the version."),
}
"""Name -> module that has it under that name, and its line in the overview."""


class _Subcommands(click.Group):
    """Imports a subcommand when it is used: `kvlens version` must not load a stream processor."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(COMMANDS[cmd_name][0]), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(cls=_Subcommands, context_settings={"help_option_names": ["-h", "--help"]})
def kvlens() -> None:
    """KV-cache events of a fleet of inference engines, as a Kafka log and ClickHouse tables."""


def main() -> None:
    """Entry point of the console script."""
    failures.run(kvlens)


if __name__ == "__main__":
    main()

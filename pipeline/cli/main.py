"""The `kvlens` command: which subcommands there are and where each is."""

from __future__ import annotations

from importlib import import_module

import click

from pipeline.cli import failures

COMMANDS = {
    "demo": ("pipeline.cli.demo", "Everything on this machine, with a small simulated fleet, shown live."),
    "up": ("pipeline.cli.up", "Connector and worker for the configured engines, under one supervisor."),
    "connect": ("pipeline.cli.connect", "Publish the engines' event streams to Kafka."),
    "work": ("pipeline.cli.work", "Turn the Kafka log into ClickHouse tables."),
    "doctor": ("pipeline.cli.doctor", "What is wrong with a running fleet, and what to do."),
    "serve": ("pipeline.cli.serve", "Show the boards on a page of its own, without Grafana."),
    "verify": ("pipeline.cli.verify", "Whether the tables are what the log says, by a recount."),
    "migrate": ("pipeline.cli.migrate", "Create or upgrade the ClickHouse tables."),
    "topics": ("pipeline.cli.topics", "Create or list the Kafka topics."),
    "simulate": ("pipeline.cli.simulate", "Run simulated engines that publish events as real ones do."),
    "record": ("pipeline.cli.record", "Write the frames that engines publish to a file."),
    "play": ("pipeline.cli.play", "Publish a recording as the engine it came from."),
    "analyze": ("pipeline.cli.analyze", "What a recording's engines held, offline."),
    "whatif": ("pipeline.cli.whatif", "The same traffic with other replicas, caches or routing."),
    "config": ("pipeline.cli.config", "Show the effective settings."),
    "version": ("pipeline.cli.version", "Print the version."),
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

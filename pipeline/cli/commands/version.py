"""`kvlens version`."""

from __future__ import annotations

from importlib import metadata

import click

from pipeline.cli.groups import examples


@click.command(epilog=examples("kvlens version"))
def version() -> None:
    """Print the version of kvlens, and nothing else."""
    click.echo(installed_version())


def installed_version() -> str:
    """Return the version of the installed package."""
    try:
        return metadata.version("kvlens")
    except metadata.PackageNotFoundError:
        return "unknown: run from a source tree that is not installed"

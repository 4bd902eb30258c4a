"""`kvlens version`."""

from __future__ import annotations

from importlib import metadata

import click


@click.command
def version() -> None:
    """Print the version of kvlens."""
    try:
        click.echo(metadata.version("kvlens"))
    except metadata.PackageNotFoundError:
        click.echo("unknown: run from a source tree that is not installed")

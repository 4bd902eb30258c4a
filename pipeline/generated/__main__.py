"""`python -m pipeline.generated`: write the generated files, or compare them."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from pipeline.generated.artefacts import compare, render, write
from pipeline.generated.examples.files import FrozenExistsError, freeze

ROOT = Path(__file__).parents[2]


@click.command()
@click.option("--check", is_flag=True, help="Write nothing; exit 1 when a file differs.")
@click.option("--freeze", "release", metavar="RELEASE", help="Keep today's examples as those of a release.")
@click.option(
    "--root",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=ROOT,
    help="Directory of the checkout.",
)
def main(check: bool, release: str | None, root: Path) -> None:
    """Write JSON Schema, AsyncAPI, examples and reference pages from the schemas."""
    if release:
        try:
            click.echo(f"wrote {freeze(root, release)}")
        except FrozenExistsError as error:
            raise click.ClickException(str(error)) from error
        return
    files = render()
    differences = compare(root, files)
    if not check:
        write(root, files, differences)
    for difference in differences:
        click.echo(difference.summary)
    if check and differences:
        click.echo("run `python -m pipeline.generated`", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()

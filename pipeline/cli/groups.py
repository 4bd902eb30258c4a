"""Groups of commands that print their help when called alone, and the examples that end each help."""

from __future__ import annotations

from difflib import get_close_matches

import click


def examples(*lines: str) -> str:
    """Return the epilog that shows these command lines, one a line, as they are."""
    return "\n".join(("\b", "Examples:", *(f"  {line}" for line in lines)))


class Group(click.Group):
    """Without a command it prints its help and succeeds; for a mistyped name it suggests the nearest one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if self.get_command(ctx, args[0]) is None:
            near = get_close_matches(args[0], self.list_commands(ctx), n=1)
            if near:
                ctx.fail(f"No such command '{args[0]}'. Did you mean `{ctx.command_path} {near[0]}`?")
        return super().resolve_command(ctx, args)

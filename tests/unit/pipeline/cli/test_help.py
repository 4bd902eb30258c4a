"""What the help of each command says: one sentence first, examples last, all of it within 80 columns."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator

import click
import pytest

from pipeline.cli.main import COMMANDS, kvlens


def commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, group
    context = click.Context(group, info_name=path)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


NOTHING: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
ALL = dict(commands(kvlens, "kvlens"))


def shown_help(path: str) -> list[str]:
    context = click.Context(ALL[path], info_name=path, terminal_width=80)
    return ALL[path].get_help(context).splitlines()


@pytest.mark.parametrize("path", ALL)
def test_help_begins_with_one_sentence_and_ends_with_examples(path: str) -> None:
    lines = shown_help(path)
    usage, sentence, *_ = "\n".join(lines).split("\n\n")
    assert usage.startswith("Usage: ")
    assert re.fullmatch(r"[^.]*\.", sentence.strip().replace("\n", " ")), sentence
    examples = lines[lines.index("  Examples:") + 1 :]
    assert examples
    assert all(line.startswith("    ") and "kvlens" in line for line in examples)
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("path", ALL)
def test_examples_name_commands_and_options_that_exist(path: str) -> None:
    lines = shown_help(path)
    for line in lines[lines.index("  Examples:") + 1 :]:
        if "_COMPLETE" in line:
            continue
        words = shlex.split(line, comments=True)
        words = words[words.index("kvlens") + 1 :]
        name = max((each for each in ALL if f"kvlens {' '.join(words)} ".startswith(f"{each} ")), key=len)
        rest = words[len(name.split()) - 1 :]
        # A file of the example need not exist here.
        absent = contextlib.suppress(click.BadParameter) if "-dir" in line or ".jsonl" in line else NOTHING
        with absent:
            ALL[name].make_context(name, list(rest))


def test_the_overview_has_every_command_with_a_sentence() -> None:
    text = "\n".join(shown_help("kvlens"))
    for name, sentence in COMMANDS.items():
        assert f"\n  {name} " in text
        assert sentence.endswith(".")

"""The documentation names what exists: settings, tables, topics, metrics, files and commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import cast

import click
import msgspec
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase
from ruamel.yaml import YAML

from connectors.process.registry import Registry
from connectors.telemetry.events import Telemetry
from pipeline.cli.main import kvlens
from pipeline.dashboards.boards import BOARDS
from pipeline.dashboards.panel import Board
from pipeline.generated.pages.settings import AS_KAFKA
from pipeline.generated.pages.tables import INTERNAL, tables_and_views
from pipeline.generated.topics_file import load_topics
from pipeline.index.telemetry import IndexMetrics
from pipeline.local.demo.story import STORY
from pipeline.settings.loading import section_types, variable_of
from pipeline.worker.telemetry import WorkerMetrics
from schemas.discovery_settings import Replica
from schemas.fleet_metrics import Fleet
from schemas.metric_kinds import Gauge
from schemas.metrics import Connector, Index, Login, Otlp, Worker, metrics_of
from schemas.settings import SECRET_KEYS, Model, Prefix, Settings
from tests.support.checkout import ROOT
from tests.support.command_lines import FENCE, command_lines

METRICS = tuple(
    metric for process in (Login, Connector, Worker, Index, Fleet, Otlp) for metric in metrics_of(process)
)
PAGES = sorted(
    path
    for pattern in ("*.md", ".github/**/*.md", "docs/**/*.md", "deploy/**/*.md", "schemas/**/*.md")
    for path in ROOT.glob(pattern)
)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text("utf-8")


def anchors(text: str) -> set[str]:
    """The fragment of every heading, as renderers of Markdown make them."""
    headings = re.findall(r"^#{1,6} (.+?)\s*$", FENCE.sub("", text), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def shown_command_lines() -> Iterator[tuple[str, str]]:
    """(page, command line) of all pages."""
    for path in PAGES:
        for line in command_lines(path.read_text("utf-8")):
            yield str(path.relative_to(ROOT)), line


def unparsable(line: str) -> str | None:
    """Why the command line is refused before anything runs; None when it is not."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = list(takewhile(lambda word: not set(word) <= set("();<>|&"), lexer))
    command: click.Command = kvlens
    arguments = words[1:]
    name = "kvlens"
    parent: click.Context | None = None
    try:
        while True:
            context = command.make_context(name, list(arguments), parent=parent)
            if not isinstance(command, click.Group):
                return None
            remaining = [*context._protected_args, *context.args]
            name, found, arguments = command.resolve_command(context, remaining)
            assert found is not None
            command, parent = found, context
    except click.exceptions.Exit:
        return None  # --help or --version
    except click.BadParameter as error:
        # A file of the example need not exist here.
        return None if "does not exist" in error.format_message() else error.format_message()
    except click.ClickException as error:
        return error.format_message()


def test_every_setting_is_documented() -> None:
    text = page("configuration.md")
    for section, kind in section_types().items():
        _, _, rest = text.partition(f"## [{section}]\n")
        body, _, _ = rest.partition("\n## ")
        if section == AS_KAFKA:
            assert all(f"`{key}`" in body for key in kind.__struct_fields__)
            continue
        for key in kind.__struct_fields__:
            (row,) = [line for line in body.splitlines() if line.startswith(f"| `{key}` |")]
            assert variable_of(section, key) == f"KVLENS_{section}__{key}".upper()
            assert row.rsplit("|", 2)[1].strip(), f"{section}.{key} has no meaning"
            assert ("**Secret**" in row) == ((section, key) in SECRET_KEYS)
    for name, kind in {"replicas": Replica, "models": Model, "prefixes": Prefix}.items():
        body = text.partition(f"## [[{name}]]\n")[2].partition("\n## ")[0]
        for key in kind.__struct_fields__:
            (row,) = [line for line in body.splitlines() if line.startswith(f"| `{key}` |")]
            assert row.rsplit("|", 2)[1].strip(), f"{name}.{key} has no meaning"
    assert set(section_types()) | {"replicas", "models", "prefixes"} == set(Settings.__struct_fields__)


def test_documented_defaults_are_those_of_the_code() -> None:
    text = page("configuration.md")
    for section, kind in section_types().items():
        body = text.partition(f"## [{section}]\n")[2].partition("\n## ")[0]
        if section == AS_KAFKA:
            continue
        for field in msgspec.structs.fields(kind):
            (row,) = [line for line in body.splitlines() if line.startswith(f"| `{field.name}` |")]
            shown = re.split(r"(?<!\\)\|", row)[3].strip().split("`")[1]
            documented = msgspec.json.decode(shown.encode(), type=type(field.default))
            assert documented == field.default, f"{section}.{field.name}"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_tests_that_are_named_exist(path: Path) -> None:
    text = path.read_text("utf-8")
    named = set(re.findall(r"\btests/[\w./-]+[\w]", text))
    assert [name for name in sorted(named) if not (ROOT / name.partition("::")[0]).exists()] == []


def test_every_table_and_view_is_documented() -> None:
    text = page("tables.md")
    tables, views = tables_and_views()
    for name, definition in tables.items():
        assert f"`{name}`" in text or f"\n## {re.sub('_1[mh]$', '_10s', name)}\n" in text
        if name not in INTERNAL:
            assert all(f"`{column}`" in text for column in definition.columns), name
    for name, view in views.items():
        asked = f"({', '.join(view.parameters)})" if view.parameters else ""
        assert f"`{name}{asked}`" in text


def test_every_topic_is_documented() -> None:
    text = page("topics.md")
    for topic in load_topics().values():
        read_by_others = "downstream services" in topic.consumers
        assert (f"\n## {topic.name}\n" if read_by_others else f"| `{topic.name}` |") in text


def exposed(registry: CollectorRegistry) -> dict[str, tuple[str, str]]:
    """{metric: (type, meaning)} as a registry exposes them."""
    return {
        family.name + ("_total" if family.type == "counter" else ""): (family.type, family.documentation)
        for family in registry.collect()
    }


def documented() -> dict[str, tuple[str, str]]:
    text = page("metrics.md")
    rows = re.findall(r"^\| `(kvlens_\w+)(?:\{.+\})?` \| (.*) \|$", text, re.M)
    (said,) = re.findall(r"(?s)end in `_total`; (.+) are histograms, all others gauges", text)
    histograms = set(re.findall(r"`(\w+)`", said))
    kinds = {name: "histogram" if name in histograms else "gauge" for name, _ in rows}
    return {name: ("counter" if name.endswith("_total") else kinds[name], meaning) for name, meaning in rows}


def test_every_metric_is_documented_and_no_other() -> None:
    connector = Telemetry(clock=lambda: 0.0)
    gauges = (metric for metric in metrics_of(Connector) if isinstance(metric, Gauge) and not metric.labels)
    connector.watch({}, dict.fromkeys(gauges, lambda: 0.0), bool)
    fleet = Registry()
    for metric in metrics_of(Fleet):
        fleet.gauge(cast("Gauge", metric))
    fleet.counter(Otlp.exports)
    of_processes = exposed(connector.registry) | exposed(WorkerMetrics().registry)
    defined = of_processes | exposed(IndexMetrics().registry) | exposed(fleet)
    assert set(defined) == {metric.name for metric in METRICS}
    assert documented() == defined


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_metrics_that_a_page_names_exist(path: Path) -> None:
    names = {metric.name for metric in METRICS}
    assert set(re.findall(r"kvlens_(?:connector|fleet|worker)_\w+", path.read_text("utf-8"))) <= names


def test_documented_labels_are_those_of_the_catalogues() -> None:
    labels = {metric.name: metric.labels for metric in METRICS}
    for family in WorkerMetrics().__dict__.values():
        if isinstance(family, MetricWrapperBase):
            (description,) = family.describe()
            name = description.name + ("_total" if description.type == "counter" else "")
            assert labels[name] == family._labelnames
    assert labels["kvlens_connector_batches_total"] == ("replica",)
    assert labels["kvlens_connector_undecodable_total"] == ("replica", "reason")
    assert not {"hash", "token", "session"} & {label for names in labels.values() for label in names}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_resolve(path: Path) -> None:
    text = path.read_text("utf-8")
    for match in LINK.finditer(FENCE.sub("", text)):
        target = match[1] or match[2]
        if re.match(r"[a-z]+:", target):
            continue
        file, _, fragment = target.partition("#")
        place = (path.parent / file).resolve() if file else path
        assert place.exists(), target
        assert place.is_relative_to(ROOT), target
        if fragment and place.suffix == ".md":
            assert fragment in anchors(place.read_text("utf-8")), target


NAMED_FILE = re.compile(r"`((?:connectors|pipeline|schemas|tests|docs|deploy|\.ci)/[\w./-]*)`")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_named_files_and_rooms_exist(path: Path) -> None:
    named = set(NAMED_FILE.findall(path.read_text("utf-8")))
    assert {name for name in named if not (ROOT / name).exists()} == set()


def test_shown_command_lines_are_accepted() -> None:
    refused = {line: problem for line in shown_command_lines() if (problem := unparsable(line[1]))}
    assert refused == {}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_shown_files_can_be_read(path: Path) -> None:
    """Whoever copies a file from a page has one that its reader takes."""
    read: dict[str, Callable[[str], object]] = {
        "yaml": lambda text: list(YAML(typ="safe").load_all(text)),
        "toml": msgspec.toml.decode,
        "json": msgspec.json.decode,
    }
    for language, text in FENCE.findall(path.read_text("utf-8")):
        if language in read:
            read[language](text)


def test_a_command_line_that_does_not_exist_is_noticed() -> None:
    assert "No such command" in str(unparsable("kvlens fly"))
    assert "No such option" in str(unparsable("kvlens version --no-such-option"))
    assert unparsable("kvlens --help | less # a comment") is None
    page_text = (
        "```sh\n$ kvlens a \\\n  --b\nmake demo\nuv run kvlens c\n```\n"
        "`kvlens d`\n```\n$ kvlens e\nkvlens 0.1\n```\n"
    )
    assert list(command_lines(page_text)) == ["kvlens a    --b", "kvlens c", "kvlens e"]


SHOWN_ON = re.compile(rf"({'|'.join(board.title for board in BOARDS)})(?:: ([^;|]+?))?(?=;|$)")


def names_on(board: Board) -> set[str]:
    """Titles of its panels, and names of the series and columns in them."""
    found = {panel.title for panel in board.panels} | {
        name for panel in board.panels for name in panel.colours
    }
    return found | {name for panel in board.panels for name in re.findall(r"\bAS `?([\w-]+)", panel.sql)}


def test_the_demo_shows_its_story_on_panels_that_exist() -> None:
    boards = {board.title: board for board in BOARDS}
    places = re.findall(r"^\| \d+ \| .+ \| (.+) \|$", page("local.md"), re.M)
    assert len(places) == len(STORY)
    for place in places:
        found = SHOWN_ON.findall(place)
        assert len(found) == place.count(";") + 1, place
        for title, shown in found:
            names = names_on(boards[title])
            for what in filter(None, shown.split(", ")):
                assert any(what == name or what.startswith(f"{name} ") for name in names), (title, what)


@pytest.mark.parametrize("name", ["page.md", "reading.md", "alerts.md", "index-service.md"])
def test_boards_and_panels_that_a_page_names_exist(name: str) -> None:
    titles = {each.title for board in BOARDS for each in (board, *board.panels)}
    controls = {"From\N{EN DASH}to"}
    text = FENCE.sub("", page(name))
    named = set(re.findall(r"(?<![*\w])\*([A-Z][^*\n]*)\*(?![*\w])", text))
    assert named - controls <= titles
    assert named & titles


DECISIONS = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))


def test_the_index_of_decisions_has_each_with_its_date() -> None:
    rows = re.findall(r"^\| (\d+) \| \[(.+)\]\((.+)\) \| (\S+) \|$", page("decisions/README.md"), re.M)
    assert [name for _, _, name, _ in rows] == [path.name for path in DECISIONS]
    for number, title, name, date in rows:
        text = page(f"decisions/{name}")
        assert text.startswith(f"# {number}. {title}\n\n{date}, ")
        assert re.findall(r"^## (.+)$", text, re.M) == [
            "Context",
            "Alternatives",
            "Consequences",
            "What would change our minds",
        ]

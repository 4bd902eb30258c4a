"""The advice of a fleet of prefill and decode replicas, by rows that are easy to add up."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NamedTuple

import clickhouse_connect
import msgspec
import pytest
from clickhouse_connect.driver.client import Client

from pipeline.advice.reading import Advice, read_advice
from pipeline.local.clickhouse.embedded import EmbeddedStore
from schemas.fleet_rows import FillsRow
from schemas.rows import EngineCountersRow, Row, SourceRow
from schemas.settings import Settings
from tests.support.inputs.board_rows import HOUR, runner, write_rows
from tests.support.inputs.empty_tables import EmptyTables

WINDOWS = 60
END = HOUR + timedelta(seconds=10 * WINDOWS - 1)
BETWEEN = {"from": int(HOUR.timestamp()), "to": int(END.timestamp())}
Findings = dict[str, dict[str, dict[str, Any]]]


class Each(NamedTuple):
    """Tokens of a replica in each window: fills by cause, and what its engine counts."""

    role: str
    transferred: int
    peer: int
    peer_and_evicted: int
    evicted: int
    cold: int
    decoded: int
    computed: int
    received: int
    generated: int
    again: int = 0
    """Of those transferred."""
    at_receivers: int = 0
    """Of `peer`."""

    @property
    def filled(self) -> int:
        return sum(self[1:7])


FLEET = {
    "p0": Each("prefill", 0, 30, 10, 20, 140, 0, 180, 0, 5),
    "p1": Each("prefill", 0, 30, 10, 20, 140, 0, 180, 0, 5),
    "d0": Each("decode", 300, 20, 0, 0, 80, 60, 25, 310, 70),
    # Its engine counts a third less than the events show, and computes nothing.
    "d1": Each("decode", 300, 20, 0, 0, 80, 50, 0, 200, 70),
}
PREFILL = 200 + 200 + 100 + 100
AVOIDABLE = 60 + 60 + 20 + 0
"""What d1 fills again was not computed for a prompt."""
VARIANTS = {
    "m": FLEET,
    # Where a decode replica received nothing, what it holds may be taken for a peer's.
    "received": {
        **FLEET,
        "p0": FLEET["p0"]._replace(at_receivers=20),
        "d1": FLEET["d1"]._replace(transferred=0, received=0),
    },
    "alone": {name: each for name, each in FLEET.items() if name != "p1"},
    "without roles": {name: each._replace(role="") for name, each in FLEET.items()},
    "all decode": {name: each._replace(role="decode") for name, each in FLEET.items()},
    "moved again": {**FLEET, "d0": FLEET["d0"]._replace(again=60)},
    "of two ranks": {"d1": FLEET["d1"]},
}
"""{model: its fleet}; they share tables, as each question is dear."""


def rows_of(fleet: dict[str, Each], model: str = "m") -> list[Row]:
    """Scrapes in the middle of windows, the first one in that before the range."""
    rows: list[Row] = []
    for replica, each in fleet.items():
        rows.append(
            SourceRow(
                model, replica, 0, 7, HOUR, None, "", "vllm", "map", model, "t", each.role, 0, 9, [],
                "complete", HOUR, 1,
            )
        )  # fmt: skip
        for number in range(WINDOWS):
            at = HOUR + timedelta(seconds=10 * number)
            figures: dict[str, Any] = {
                f"{cause}_{unit}": getattr(each, cause) // (16 if unit == "blocks" else 1)
                for cause in ("filled", "transferred", "peer", "peer_and_evicted", "evicted", "cold")
                for unit in ("blocks", "tokens")
            }
            figures["transferred_again_tokens"] = each.again
            figures["peer_at_receivers_tokens"] = each.at_receivers
            figures |= {"generated_blocks": each.decoded // 16, "generated_tokens": each.decoded}
            others: dict[str, Any] = dict.fromkeys(FillsRow.__struct_fields__, 0)
            named: dict[str, Any] = {
                "window": at,
                "hash_domain": model,
                "model": model,
                "replica": replica,
                "regret_hist": [],
            }
            named |= {"sampled_one_in": 1, "trust": "complete", "version": 1}
            rows.append(FillsRow(**{**others, **named, **figures}))
        for number in range(WINDOWS + 1):
            at = HOUR + timedelta(seconds=10 * number - 5)
            counted = [each.computed * number, each.received * number, 0, each.generated * number]
            rows.append(
                EngineCountersRow(
                    at, model, replica, 0, 1000 * number, 900 * number, None, None, 100, 16, 0.5, *[None] * 3,
                    *counted, 1,
                )
            )  # fmt: skip
    return rows


@pytest.fixture(scope="module")
def tables(empty_tables: EmptyTables) -> Iterator[Settings]:
    with empty_tables.lent() as settings:
        write_rows(settings, [row for model, fleet in VARIANTS.items() for row in rows_of(fleet, model)])
        yield settings


@pytest.fixture(scope="module")
def client(tables: Settings) -> Iterator[Client]:
    store = tables.clickhouse
    client = clickhouse_connect.get_client(
        dsn=store.url, database=store.database, autogenerate_session_id=False
    )
    yield client
    client.close()


@pytest.fixture(scope="module")
def findings(client: Client) -> Findings:
    """Findings of each model by kind, asked for with one question."""
    sql = "SELECT * FROM findings(from = {from:UInt32}, to = {to:UInt32})"
    found: Findings = {model: {} for model in VARIANTS}
    for row in client.query(sql, parameters=BETWEEN).named_results():
        assert row["kind"] not in found[row["model"]]
        found[row["model"]][row["kind"]] = row
    return found


def advised(client: Client, model: str) -> Advice:
    return read_advice(client, str(client.database), BETWEEN["from"], BETWEEN["to"], [model])


def test_each_part_of_a_fleet_is_advised_what_it_can_do(client: Client) -> None:
    advice = advised(client, "m")
    assert advice.answer[0].value == pytest.approx(AVOIDABLE / PREFILL)
    found = {each.kind: each for each in advice.findings}
    assert found.keys() == {"routing", "capacity", "decode", "transfers"}
    # They have no curve of what more cache saves.
    assert found["capacity"].finding == "p0, p1 evict what they fill again: 15 % of their prefill"
    assert found["capacity"].figure == "saves at most 21.6k tokens/h"
    routing, decode, transfers = (found[kind] for kind in ("routing", "decode", "transfers"))
    assert routing.finding == (
        "Replicas that prefill computed what another of them held: 13 % of the prefill of m"
    )
    assert routing.action == "Route m by prefix among the replicas that prefill"
    assert routing.replicas == ["p0", "p1"]
    assert routing.tokens_per_hour == 2 * 40 * 360
    assert routing.figure == "saves at most 28.8k tokens/h"
    assert decode.finding == (
        "1 of 4 replicas of m decode, and compute 7.5 % of the prompt tokens that they lacked: d0"
    )
    assert (decode.tokens_per_hour, decode.replicas) == (25 * 360, ["d0"])
    assert transfers.finding == (
        "1 of 4 replicas of m count other transfers than their events show, 33 % apart: d1"
    )
    assert (transfers.tokens_per_hour, transfers.board) == (100 * 360, "replica")
    assert advice.answer[2].figure == "Routing"


def test_what_only_receivers_held_is_no_matter_of_routing(findings: Findings) -> None:
    """And where a decode replica received nothing, what it holds may be taken for a peer's."""
    routing = findings["received"]["routing"]
    assert routing["tokens_per_hour"] == (40 - 20 + 40) * 360
    assert routing["finding"] == (
        "Another replica, which prefills or decodes, held 10 % of the prefill of received"
    )
    assert routing["figure"] == "saves at most 21.6k tokens/h, less what only replicas that decode held"


def test_one_replica_that_prefills_has_none_to_route_to(findings: Findings) -> None:
    assert findings["alone"].keys() == {"capacity", "decode", "transfers"}


def test_where_no_replica_only_prefills_all_can_be_routed_to(findings: Findings) -> None:
    """As where a stack calls all its replicas decode."""
    for model in ("without roles", "all decode"):
        found = findings[model]
        assert found.keys() == {"routing", "capacity", "transfers"}
        assert found["routing"]["finding"] == f"Another replica held 17 % of the prefill of {model}"
        assert found["routing"]["tokens_per_hour"] == (40 + 40 + 20) * 360


def test_what_was_evicted_and_is_transferred_again_wants_more_cache(findings: Findings) -> None:
    found = findings["moved again"]
    assert found.keys() == {"routing", "capacity", "decode", "refetched", "transfers"}
    again = found["refetched"]
    assert again["finding"] == (
        "1 of 4 replicas of moved again had evicted 20 % of the tokens that were transferred to them: d0"
    )
    assert again["action"] == "Give d0 more KV cache, or a CPU tier: what stays need not be moved again"
    assert again["figure"] == "saves transfers of about 21.6k tokens/h, and no prefill"
    assert (again["replicas"], again["tokens_per_hour"], again["board"]) == (["d0"], 60 * 360, "replica")


@pytest.mark.night
def test_what_saves_no_prefill_is_no_lever(client: Client) -> None:
    assert advised(client, "moved again").answer[2].figure == "Routing"


def test_avoidable_is_bounded_where_all_ranks_are_scraped(store: EmbeddedStore, tables: Settings) -> None:
    run, model = runner(store, tables), "of two ranks"
    bounds = f"(from = '{HOUR:%F %T}', to = '{END:%F %T}') WHERE model = '{model}'"
    sql = (
        f"SELECT 'potential', computed_tokens, avoidable_tokens FROM hit_potential{bounds}"
        f" UNION ALL SELECT 'facts', computed_tokens, avoidable_tokens FROM replica_facts{bounds}"
    )
    assert sorted(run("views", sql).result_rows) == [("facts", 0, 0), ("potential", 0, 0)]
    fills = [row for row in rows_of(VARIANTS[model], model) if isinstance(row, FillsRow)]
    write_rows(tables, [msgspec.structs.replace(row, dp_rank=1) for row in fills[:1]], rolled_up=False)
    one_more = (WINDOWS + 1) * 20
    assert sorted(run("views", sql).result_rows) == [("facts", None, one_more), ("potential", None, one_more)]


def test_filled_is_what_engines_counted_and_the_rest(store: EmbeddedStore, tables: Settings) -> None:
    for seconds in (10, 60, 3600):
        found = runner(store, tables)(
            "balance",
            "SELECT replica, sum(filled_tokens), sum(computed_tokens), sum(b.transferred_tokens),"
            " sum(reloaded_tokens), sum(generated_tokens), sum(left_over_tokens), sum(claimed_tokens),"
            " sum(decoded_tokens)"
            f" FROM replica_balance_windows_in_utc(from = {{from:DateTime}}, to = {{to:DateTime}}, step = 30,"
            f" seconds = {seconds}) AS b"
            " WHERE model = 'm' GROUP BY replica",
            to=END,
        ).result_rows
        assert {row[0]: row[1:] for row in found} == {
            name: (
                WINDOWS * each.filled,
                *(WINDOWS * count for count in (each.computed, each.received, 0, each.generated)),
                WINDOWS * (each.filled - each.computed - each.received - each.generated),
                WINDOWS * each.transferred,
                WINDOWS * each.decoded,
            )
            for name, each in FLEET.items()
        }

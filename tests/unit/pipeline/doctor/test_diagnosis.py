"""Facts of a healthy fleet give no finding; each planted fault gives its own and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import pytest

from pipeline.doctor.diagnosis import diagnose
from pipeline.doctor.facts import (
    EngineFacts,
    Facts,
    GroupFacts,
    HashFacts,
    HealthFacts,
    KafkaFacts,
    LogFacts,
    PositionFacts,
    ReportsFacts,
    SessionFacts,
    SetAsideFacts,
    StoreFacts,
    TopicFacts,
    Unanswered,
)
from pipeline.doctor.finding import CANNOT_TELL, HEALTHY, PROBLEMS, Finding, exit_code
from pipeline.doctor.hash_checks import hash_findings
from pipeline.doctor.report import as_json, as_text
from schemas.reasons import Remark
from tests.support.checkout import ROOT

NOW = 1_800_000_000.0
A, B = ("a", 0), ("b", 0)
LIFE = int((NOW - 3000) * 1e6)

HEALTH = HealthFacts(
    window=NOW - 5,
    incarnation=LIFE,
    last_seq=41,
    last_batch_at=NOW - 1,
    connected=True,
    trust="complete",
    drift_blocks=0,
    drift_since=None,
    lag_seconds=0.2,
    gap_batches=0,
    replayed_batches=0,
    lost_batches=0,
    undecodable_events=0,
    duplicate_batches=0,
    batches=42,
    restarts=0,
)
OPEN = SessionFacts(
    model="m",
    incarnation=LIFE,
    opened_at=NOW - 3000,
    closed_at=None,
    closed_reason="",
    engine="vllm",
    wire_era="map",
    hash_domain="m/x/default",
    last_seq=41,
    trust="complete",
    trust_since=NOW - 3000,
)
ENGINE = EngineFacts(
    capacity_blocks=1000,
    usage=0.5,
    counters={"prefix cache": (300, 300)},
    computed_tokens=200_000,
    entries=800,
    stored_tokens=150_000,
    trust="complete",
)
CONFIG = {"cleanup.policy": "delete", "retention.ms": "604800000", "max.message.bytes": "8388608"}
HEALTHY_FACTS = Facts(
    at=NOW,
    configured=(A, B),
    kafka=KafkaFacts(
        "k:9092",
        topics=(TopicFacts("kvlens.events.v1", 8, 8, CONFIG, CONFIG),),
        groups=(
            GroupFacts("kvlens.replica", "kvlens.events.v1", 2, {0: 0, 1: 12}, {0: NOW - 900, 1: NOW - 1}),
        ),
        log={source: LogFacts(LIFE, 44, NOW - 1, (LIFE, 40)) for source in (A, B)},
        log_seconds=90.0,
        newest_record_at=NOW - 1,
        positions={source: PositionFacts(LIFE, 44) for source in (A, B)},
    ),
    store=StoreFacts(
        "http://c:8123",
        written_at=NOW - 2,
        health=dict.fromkeys((A, B), HEALTH),
        sessions=dict.fromkeys((A, B), OPEN),
    ),
)


def kafka(**changes: Any) -> Facts:
    return replace(HEALTHY_FACTS, kafka=replace(HEALTHY_FACTS.kafka, **changes))


def store(**changes: Any) -> Facts:
    return replace(HEALTHY_FACTS, store=replace(HEALTHY_FACTS.store, **changes))


def health(**changes: Any) -> Facts:
    return store(health={A: replace(HEALTH, **changes), B: HEALTH})


def life(**changes: Any) -> Facts:
    return store(sessions={A: replace(OPEN, **changes), B: OPEN})


def content(**changes: Any) -> Facts:
    """The same with content hashes, of a model whose name has a slash."""
    named = replace(OPEN, model="org/m", hash_domain="org/m/content/default")
    return store(sessions={A: replace(named, **changes), B: named})


def topic(**changes: Any) -> Facts:
    return kafka(topics=(replace(HEALTHY_FACTS.kafka.topics[0], **changes),))


def copies(number: int = 1, *, brokers: int = 1, in_sync: int = 1, least: int = 1, **changes: Any) -> Facts:
    """The topic so many times, of which `least` have to acknowledge."""
    config = {**CONFIG, "min.insync.replicas": str(least)}
    facts = topic(replication_factor=number, in_sync=in_sync, config=config, **changes)
    return replace(facts, kafka=replace(facts.kafka, brokers=brokers))


def group(**changes: Any) -> Facts:
    return kafka(groups=(replace(HEALTHY_FACTS.kafka.groups[0], **changes),))


def log(**changes: Any) -> Facts:
    seen = HEALTHY_FACTS.kafka.log
    return kafka(log={A: replace(seen[A], **changes), B: seen[B]})


def test_a_healthy_fleet_has_no_finding() -> None:
    assert diagnose(HEALTHY_FACTS) == []
    assert exit_code([]) == HEALTHY


@pytest.mark.parametrize(
    "facts", [copies(3, brokers=3, in_sync=3, least=2), copies(2, brokers=2, in_sync=2), copies(brokers=2)]
)
def test_copies_that_survive_a_broker_or_cannot_are_no_finding(facts: Facts) -> None:
    assert diagnose(facts) == []


def position(**changes: Any) -> Facts:
    told = replace(PositionFacts(LIFE, 44, 0, NOW - 5, (LIFE, 42)), **changes)
    return kafka(positions={A: told, B: PositionFacts(LIFE, 41, 0, NOW - 5, (LIFE, 41))})


@pytest.mark.parametrize(
    "facts",
    [
        position(settled=(LIFE, 41)),
        position(settled=None),
        position(partition=1),  # records of that one wait
        position(written_at=NOW - 600),  # nobody reads it any more
    ],
)
def test_what_may_still_come_is_not_lost(facts: Facts) -> None:
    assert diagnose(facts) == []


EVENTS, ON_A = ("kvlens.events.v1",), ("a/0",)
PLANTED: list[tuple[str, str, Facts, tuple[str, ...]]] = [
    ("kafka-unavailable", "problem", replace(HEALTHY_FACTS, kafka=KafkaFacts("k:9092", "refused")), ()),
    ("records-lost", "problem", position(), ON_A),
    ("records-lost", "problem", position(settled=(LIFE + 1, 0)), ON_A),
    (
        "topic-made-again",
        "problem",
        replace(
            topic(id="new"), kafka=replace(topic(id="new").kafka, saved_topics={"kvlens.events.v1": "old"})
        ),
        EVENTS,
    ),
    ("kafka-unanswered", "unknown", kafka(unanswered={"group g": "denied"}), ()),
    ("topic-missing", "problem", topic(partitions=0, config={}), EVENTS),
    ("topic-hidden", "unknown", topic(partitions=0, config={}, hidden=True), EVENTS),
    ("topic-copies", "problem", copies(wanted_replication_factor=3), EVENTS),
    ("topic-copies", "problem", copies(brokers=3), EVENTS),
    ("topic-in-sync", "problem", copies(3, in_sync=1, least=2), EVENTS),
    ("topic-in-sync", "note", copies(3, in_sync=2, least=2), EVENTS),
    ("topic-min-insync", "problem", copies(3, in_sync=3, least=1), EVENTS),
    ("topic-min-insync", "problem", copies(2, in_sync=2, least=2), EVENTS),
    ("topic-partitions", "problem", topic(partitions=4), EVENTS),
    ("topic-config", "problem", topic(config={**CONFIG, "cleanup.policy": "compact"}), EVENTS),
    ("topic-config", "problem", topic(config={**CONFIG, "max.message.bytes": "1048588"}), EVENTS),
    ("topic-config", "note", topic(config={**CONFIG, "retention.ms": "86400000"}), EVENTS),
    ("no-worker", "problem", group(members=0), ("kvlens.replica",)),
    ("consumer-lag", "problem", group(waiting={0: 0, 1: 5000}), ("partition 1",)),
    ("checkpoint-old", "problem", group(saved_at={0: NOW - 900, 1: NOW - 300}), ("partition 1",)),
    ("checkpoint-old", "problem", group(saved_at={}, waiting_since={1: NOW - 61}), ("partition 1",)),
    (
        "records-set-aside",
        "problem",
        kafka(
            set_aside=(
                SetAsideFacts("kvlens.events.v1[3] offset 812", "backward_gap", "a/0"),
                SetAsideFacts("kvlens.events.v1[3] offset 813", "malformed", ""),
            )
        ),
        ON_A,
    ),
    ("store-unavailable", "problem", replace(HEALTHY_FACTS, store=StoreFacts("c", "refused")), ()),
    ("store-unanswered", "unknown", store(unanswered={"engine_counters": Unanswered("denied", "ask")}), ()),
    ("store-busy", "unknown", store(late=("source_hashes",)), ()),
    ("migration-missing", "problem", store(migrations_missing=("0009_x.sql",)), ("0009_x.sql",)),
    ("migration-changed", "problem", store(migrations_changed=("0001_x.sql",)), ("0001_x.sql",)),
    ("tables-stale", "problem", store(written_at=NOW - 300), ()),
    ("clocks-differ", "problem", store(clock=-40.0), ()),
    ("rows-in-future", "problem", store(newest_window=NOW + 19_800), ()),
    ("rows-old", "problem", store(newest_window=NOW - 18_000), ()),
    ("rows-behind-log", "problem", log(settled=(LIFE, 42)), ON_A),
    ("rows-behind-log", "problem", log(settled=(LIFE + 1, 0)), ON_A),
    ("connector-silent", "problem", log(written_at=NOW - 80), ON_A),
    ("connector-silent", "problem", kafka(log={B: HEALTHY_FACTS.kafka.log[B]}), ON_A),
    ("source-unknown", "problem", replace(HEALTHY_FACTS, configured=(A, B, ("c", 3))), ("c/3",)),
    ("source-disconnected", "problem", health(connected=False), ON_A),
    ("trust-degraded", "problem", life(trust="degraded", trust_since=NOW - 60), ON_A),
    ("trust-partial", "note", life(trust="partial"), ON_A),
    ("drift", "problem", health(drift_blocks=7, drift_since=NOW - 500), ON_A),
    ("undecodable", "problem", health(undecodable_events=2), ON_A),
    ("unknown-type", "note", life(remarks=("unknown_type:BlockMoved",)), ON_A),
    ("other-rank", "note", life(remarks=("other_rank:3",)), ON_A),
    ("mixed-ranks", "problem", life(remarks=("mixed_ranks",)), ON_A),
    ("no-identity", "problem", life(remarks=("no_identity",)), ON_A),
    ("no-sequence", "note", life(remarks=("no_sequence",)), ON_A),
    ("no-salt-key", "problem", life(remarks=("no_salt_key",)), ON_A),
    ("made-up-id", "note", life(remarks=("made_up_id",)), ON_A),
    ("loads-stay", "note", life(remarks=("loads_stay",)), ON_A),
    ("source-late", "note", health(lag_seconds=100.0), ON_A),
    ("gaps-filled", "note", health(gap_batches=5, replayed_batches=5), ON_A),
    ("two-connectors", "problem", life(superseded=3), ON_A),
    ("two-connectors", "problem", health(duplicate_batches=500, batches=400), ON_A),
    ("counters-fell", "problem", store(counters_fell={A: (NOW - 1000,)}), ON_A),
    ("resident-above-capacity", "problem", store(engines={A: replace(ENGINE, entries=1001)}), ON_A),
    ("resident-below-usage", "problem", store(engines={A: replace(ENGINE, usage=0.91, entries=659)}), ON_A),
    ("hits-above-queries", "problem", store(engines={A: replace(ENGINE, counters={"x": (9, 8)})}), ON_A),
    ("stored-below-computed", "note", store(engines={A: replace(ENGINE, stored_tokens=90_000)}), ON_A),
    ("hashes-differ", "problem", life(engine="sglang"), ("a/0", "b/0")),
    ("hashes-may-differ", "note", life(wire_era="array-8"), ("a/0", "b/0")),
    (
        "hashes-not-comparable",
        "problem",
        store(hashes={A: HashFacts(True, frozenset({"a/0@1"})), B: HashFacts(False, frozenset({"b/0@1"}))}),
        ON_A,
    ),
    ("no-source", "unknown", Facts(NOW, (), KafkaFacts("k", log_seconds=90.0), StoreFacts("c")), ()),
]


@pytest.mark.parametrize(
    ("code", "severity", "facts", "subjects"), PLANTED, ids=[f"{one[0]}-{one[1]}" for one in PLANTED]
)
def test_a_planted_fault_is_the_only_finding(
    code: str, severity: str, facts: Facts, subjects: tuple[str, ...]
) -> None:
    (finding,) = diagnose(facts)
    assert (finding.code, finding.severity, finding.subjects) == (code, severity, subjects)
    assert finding.remedy or severity == "note", "each problem says what to do"
    expected = {"problem": PROBLEMS, "unknown": CANNOT_TELL, "note": HEALTHY}[severity]
    assert exit_code([finding]) == expected
    text = "\n".join(as_text(facts, [finding]))
    assert f"{severity.upper()} {code}: " in text
    assert finding.remedy in text
    assert as_json(facts, [finding])["findings"][0]["code"] == code


HARMLESS: dict[str, Callable[[], Facts]] = {
    "a topic with a larger message bound": lambda: topic(config={**CONFIG, "max.message.bytes": "9000000"}),
    "a configuration that may not be read": lambda: topic(config={}),
    "an old checkpoint where nothing waits": lambda: group(waiting={0: 0}, saved_at={0: NOW - 9999}),
    "a partition that was idle": lambda: group(saved_at={1: NOW - 9999}, waiting_since={1: NOW - 1}),
    "a partition that catches up": lambda: group(saved_at={1: NOW - 1}, waiting_since={1: NOW - 9999}),
    "a new partition": lambda: group(saved_at={}, waiting_since={1: NOW - 59}),
    "checkpoints that could not be read": lambda: group(saved_at={}),
    "an old base of an agent that writes few": lambda: group(
        waiting={0: 9}, saved_at={0: NOW - 9999}, rare_checkpoints=True
    ),
    "a removed source, whose row is still there": lambda: replace(
        life(closed_at=NOW - 100, closed_reason="removed", trust="degraded"), configured=(B,)
    ),
    "a source that the log has and the settings do not": lambda: replace(HEALTHY_FACTS, configured=(B,)),
    "counters that fell at a restart that was seen": lambda: store(
        counters_fell={A: (NOW - 1000,)},
        sessions={A: replace(OPEN, openings=(NOW - 990,)), B: OPEN},
    ),
    "batches that a restarted connector repeated": lambda: health(duplicate_batches=90, batches=42),
    "a page that agrees": lambda: store(engines={A: ENGINE, B: replace(ENGINE, usage=0.91, entries=660)}),
    "a page that says little": lambda: store(
        engines={A: EngineFacts(None, None, {}, None, None, 0, "complete")}
    ),
    "blocks that are missing since before it joined": lambda: store(
        engines={A: replace(ENGINE, usage=1.0, stored_tokens=0, trust="partial")}
    ),
    "few computed tokens": lambda: store(
        engines={A: replace(ENGINE, computed_tokens=99_999, stored_tokens=0)}
    ),
    "counters that fell just now": lambda: store(counters_fell={A: (NOW - 30,)}),
    "engines of two kinds in domains of their own": lambda: life(engine="sglang", hash_domain="m/y/default"),
    "engines of two kinds that have content hashes": lambda: content(engine="sglang"),
    "engines that encode differently and have content hashes": lambda: content(wire_era="array-8"),
    "a source with old figures only, which the last life still shows": lambda: replace(
        HEALTHY_FACTS, store=replace(HEALTHY_FACTS.store, health={B: HEALTH})
    ),
    "a busy log of which less than silence could be read": lambda: kafka(
        log={B: HEALTHY_FACTS.kafka.log[B]}, log_seconds=20.0
    ),
}


@pytest.mark.parametrize("what", HARMLESS)
def test_what_is_no_fault_is_no_finding(what: str) -> None:
    assert diagnose(HARMLESS[what]()) == []


def test_the_worst_comes_first_and_decides() -> None:
    facts = replace(
        health(drift_blocks=1, gap_batches=1),
        kafka=replace(HEALTHY_FACTS.kafka, unanswered={"the log": "no answer in time"}),
    )
    findings = diagnose(facts)
    assert [finding.severity for finding in findings] == ["problem", "unknown", "note"]
    assert exit_code(findings) == PROBLEMS
    assert exit_code(findings[1:]) == CANNOT_TELL
    assert exit_code(findings[2:]) == HEALTHY


def test_losses_that_a_demo_plans_are_notes_and_say_so() -> None:
    facts = life(trust="degraded", trust_since=NOW)
    (problem,) = diagnose(facts)
    (note,) = diagnose(facts, {"a/0": "the demo loses them", "b/0": "another"})
    assert (problem.code, problem.severity) == ("trust-degraded", "problem")
    assert note == replace(problem, severity="note", remedy="nothing: the demo loses them")
    assert exit_code([note]) == HEALTHY
    assert diagnose(facts, {"b/0": "another"}) == [problem]
    (other,) = diagnose(health(connected=False), {"a/0": "the demo loses them"})
    assert other.severity == "problem"


def test_sources_with_the_same_trouble_share_a_finding_that_stays_short() -> None:
    sources = [(f"replica-{number:03}", 0) for number in range(500)]
    facts = replace(
        HEALTHY_FACTS,
        configured=tuple(sources),
        kafka=replace(HEALTHY_FACTS.kafka, log=dict.fromkeys(sources, HEALTHY_FACTS.kafka.log[A])),
        store=replace(
            HEALTHY_FACTS.store,
            health={source: replace(HEALTH, connected=False) for source in sources},
            sessions=dict.fromkeys(sources, OPEN),
        ),
    )
    (finding,) = diagnose(facts)
    assert len(finding.subjects) == 500
    assert len(finding.message) < 300
    shown = [line for line in as_text(facts, [finding]) if "and 495 more" in line]
    assert len(shown) == 1


def test_json_and_text_have_every_source_with_its_three_positions() -> None:
    facts = kafka(positions={A: PositionFacts(LIFE, 45)})
    first, second = as_json(facts, [])["sources"]
    assert (first["position_seq"], first["log_seq"], first["table_seq"]) == (45, 44, 41)
    assert (second["position_seq"], second["log_seq"], second["table_seq"]) == (None, 44, 41)
    lines = [line.split() for line in as_text(facts, [])]
    assert lines[:2] == [["verdict:", "healthy"], []]
    assert [line[0] for line in lines if line][1:4] == ["source", "a/0", "b/0"]


def test_the_text_leads_with_the_verdict_and_fits_the_terminal() -> None:
    facts = health(drift_blocks=1, gap_batches=1)
    findings = diagnose(facts)
    lines = list(as_text(facts, findings, 80))
    assert lines[0] == "verdict: problems (1 problem, 1 note)"
    assert max(map(len, lines)) <= 80
    heads = [line.partition(":")[0] for line in lines if line.startswith(("PROBLEM", "NOTE"))]
    assert heads == [f"{finding.severity.upper()} {finding.code}" for finding in findings]
    (header,) = [line.split() for line in lines if line.startswith("source ")]
    assert {"connected", "lost", "trust"} <= set(header)
    whole = " ".join(" ".join(line.split()) for line in lines)
    assert all(finding.remedy in whole for finding in findings if finding.remedy)


@pytest.mark.parametrize(
    ("saved", "said"),
    [
        ({0: NOW - 900.4, 1: NOW - 1, 2: NOW - 30}, "checkpoints 1 to 900 s ago"),
        ({0: NOW - 1.1, 1: NOW - 0.9}, "checkpoint 1 s ago"),
        ({0: NOW + 3}, "checkpoint 0 s ago"),
        ({}, "no checkpoint"),
    ],
)
def test_the_text_has_the_oldest_checkpoint_too(saved: dict[int, float], said: str) -> None:
    (line,) = [line for line in as_text(group(saved_at=saved), []) if line.startswith("kvlens.replica")]
    assert line.split(", ")[-1] == said


def test_every_code_has_an_entry_in_the_runbook() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    missing = {code for code, *_ in PLANTED if f"`{code}`" not in page}
    assert not missing


def test_unavailable_parts_are_one_finding_each() -> None:
    facts = Facts(NOW, (A,), KafkaFacts("k", "refused"), StoreFacts("c", "refused"))
    findings = diagnose(facts)
    assert [finding.code for finding in findings] == ["kafka-unavailable", "store-unavailable"]
    assert all(isinstance(finding, Finding) for finding in findings)


def test_hash_groups_of_several_shards_are_joined() -> None:
    groups = {"a": {"a"}, "b": {"b"}, "c": {"a", "b"}, "d": {"d"}, "e": {"d", "e"}, "lonely": {"x"}}
    sources = [(name, 0) for name in groups]
    facts = store(
        sessions=dict.fromkeys(sources, OPEN),
        hashes={source: HashFacts(False, frozenset(groups[source[0]])) for source in sources},
    )
    (finding,) = hash_findings(facts)
    assert (finding.code, finding.severity) == ("hash-groups", "note")
    assert finding.message.endswith(": a/0 b/0 c/0; d/0 e/0")
    assert finding.subjects == ("a/0", "b/0", "c/0", "d/0", "e/0")


def test_who_is_alone_is_told_what_decides_its_hashes() -> None:
    hashes = {A: HashFacts(True, frozenset({"a/0@1"})), B: HashFacts(False, frozenset({"b/0@1"}))}
    (finding,) = diagnose(store(hashes=hashes))
    assert "PYTHONHASHSEED" in finding.remedy
    (finding,) = diagnose(store(sessions=content().store.sessions, hashes=hashes))
    assert (finding.code, finding.subjects) == ("hashes-not-comparable", ON_A)
    assert "block size" in finding.remedy
    assert "`content_key_file`" in finding.remedy
    assert "PYTHONHASHSEED" not in finding.remedy
    assert "hash_scheme" not in finding.remedy


def test_what_the_worker_calls_drift_is_said_once() -> None:
    planted = store(
        health={A: replace(HEALTH, drift_blocks=1, drift_since=NOW - 60)},
        engines={A: replace(ENGINE, entries=1001)},
    )
    assert [finding.code for finding in diagnose(planted)] == ["drift"]


def test_what_an_engine_says_is_told_with_figures() -> None:
    (finding,) = diagnose(store(engines={A: replace(ENGINE, usage=0.91, entries=659)}))
    assert finding.message.endswith(": a/0 910 in use, 659 held, of 1000")
    assert "`kvlens verify`" in finding.remedy
    assert "restart of the engine" in finding.remedy
    assert "connector" not in finding.remedy, "one that restarts asks for nothing before its position"


def test_a_remark_says_what_it_is_about() -> None:
    remarks = ("unknown_type:BlockA", "other_rank:3", "unknown_type:BlockB")
    (_, types, ranks) = diagnose(life(remarks=remarks, trust="degraded"))
    assert (types.severity, types.message) == (
        "problem",
        "engines publish events of types that this kvlens does not know: a/0 BlockA BlockB",
    )
    assert ranks.message == "batches say another data-parallel rank than the settings: a/0 3"
    assert diagnose(life(remarks=("other_rank:3",), closed_at=NOW)) == diagnose(life(closed_at=NOW))


def test_unknown_types_are_a_problem_until_all_that_they_may_have_changed_was_cleared() -> None:
    unknown = replace(OPEN, remarks=("unknown_type:BlockA",))
    found = diagnose(store(sessions={A: replace(unknown, trust="degraded"), B: unknown}))
    assert [(one.severity, one.subjects) for one in found if one.code == "unknown-type"] == [
        ("problem", ("a/0",)),
        ("note", ("b/0",)),
    ]
    assert diagnose(store(sessions={A: unknown, B: unknown}))[0].message == (
        "engines published events of types that this kvlens does not know; what those may have changed is "
        "cleared: a/0 BlockA; b/0 BlockA"
    )


def test_every_remark_has_a_finding() -> None:
    found = {finding.code for reason in get_args(Remark) for finding in diagnose(life(remarks=(reason,)))}
    assert {reason.replace("_", "-") for reason in get_args(Remark)} <= found


def test_reports_that_nobody_reads_are_a_problem_where_they_wait() -> None:
    reports = ReportsFacts("lmc", "kvlens.lmcache", {0: 0, 1: 7, 2: 1000})
    (finding,) = diagnose(replace(HEALTHY_FACTS, kafka=replace(HEALTHY_FACTS.kafka, reports=reports)))
    assert (finding.code, finding.severity) == ("reports-unread", "problem")
    assert finding.message.startswith("1,007 records of lmc ")
    assert finding.subjects == ("partition 1", "partition 2")
    absent = replace(HEALTHY_FACTS.kafka, reports=replace(reports, late={}))
    (finding,) = diagnose(replace(HEALTHY_FACTS, kafka=absent))
    assert (finding.code, finding.message) == ("reports-topic-missing", "lmcache.topic lmc does not exist")
    read = replace(reports, late={0: 0, 1: 0})
    assert diagnose(replace(HEALTHY_FACTS, kafka=replace(HEALTHY_FACTS.kafka, reports=read))) == []

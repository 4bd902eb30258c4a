"""The demo's question: the hashes are those that its engines announce, and the answer is one line."""

from __future__ import annotations

from itertools import islice

from pipeline.local.demo.fleet import GROUPS, TIERED_TRAFFIC
from pipeline.local.demo.question import answer_line, prompt_hashes
from pipeline.simulator.engine.scheduler import EngineSettings
from pipeline.simulator.traffic.workload import arrivals
from pipeline.simulator.wire.hashing import chain_digests, seed_digest


def test_the_hashes_are_those_of_prompts_that_clients_send() -> None:
    options = GROUPS[0].options
    assert options[options.index("--seed") + 1] == str(TIERED_TRAFFIC.seed)
    hashes = prompt_hashes()
    assert len(hashes) == TIERED_TRAFFIC.system_prompt_tokens // 16
    begins = 0
    for _, request in islice(arrivals(TIERED_TRAFFIC), 40):
        digests = chain_digests(seed_digest(EngineSettings().hash_seed), request.prompt, 16)
        begins += [int.from_bytes(digest[-8:], "big") for digest in digests[: len(hashes)]] == hashes
    assert begins >= 10, "the most common of eight"


def test_an_answer_is_one_line() -> None:
    answer = {
        "instances": {"b": {"longest_matched": 64}, "a": {"longest_matched": 256}},
        "index": {"age_seconds": 0.04},
    }
    assert answer_line(answer, 256) == "a 256, b 64, of 256 tokens; as of 0.0 s ago"
    assert answer_line({**answer, "instances": {}}, 256) == "nobody, of 256 tokens; as of 0.0 s ago"
    assert answer_line(None, 256) == "the index is starting"

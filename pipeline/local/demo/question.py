"""A question to the demo's index, as a router asks it: who holds the beginning of a known prompt."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.request import Request

import msgspec

from pipeline.local.demo.fleet import MODEL, TIERED_TRAFFIC
from pipeline.local.processes.command import open_directly
from pipeline.simulator.engine.settings import EngineSettings
from pipeline.simulator.traffic.workload import system_prompts
from pipeline.simulator.wire.hashing import chain_digests, rendered, seed_digest

_SECONDS = 0.5
_FILE = "question.json"


class IndexQuestion:
    """Who holds the fleet's most common system prompt; the question is a file of the data directory."""

    def __init__(self, directory: Path, url: str, token: str) -> None:
        """`url` is the index's address; `token` may be empty."""
        self._file = directory / _FILE
        self._url = f"{url}query_by_hash"
        self._headers = {"Content-Type": "application/json"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._token = bool(token)
        self._answered = False
        hashes = prompt_hashes()
        self.tokens = len(hashes) * EngineSettings().block_size
        self._body = msgspec.json.encode({"model_name": MODEL, "block_hashes": hashes})
        self._file.write_bytes(self._body)

    @property
    def command(self) -> str:
        """Return the shell command that asks the same."""
        header = " -H 'Content-Type: application/json'"
        if self._token:
            header += " -H 'Authorization: Bearer TOKEN'"
        file = min(str(self._file), os.path.relpath(self._file), key=len)
        return f"curl -s {self._url}{header} -d @{file}"

    def ask(self) -> Mapping[str, Any] | None:
        """Return the answer, None while there is none; waits for half a second at most."""
        request = Request(self._url, self._body, self._headers)
        try:
            with open_directly(request, timeout=_SECONDS) as answer:
                found: Mapping[str, Any] = msgspec.json.decode(answer.read())
        except (OSError, HTTPException, msgspec.DecodeError):
            return None
        self._answered = True
        return found

    def answer_line(self) -> str:
        """Ask, and return the answer, or why there is none, in one line."""
        answer = self.ask()
        if answer is not None:
            return answer_line(answer, self.tokens)
        return "the index does not answer; see index.log" if self._answered else "the index is starting"


def prompt_hashes() -> list[int]:
    """Return the hashes that the engines of the first group compute for the most common system prompt."""
    prompt = system_prompts(random.Random(TIERED_TRAFFIC.seed), TIERED_TRAFFIC)[0]
    engine = EngineSettings()
    digests = chain_digests(seed_digest(engine.hash_seed), prompt, engine.block_size)
    return [int(rendered(digest, "uint64")) for digest in digests]


def answer_line(answer: Mapping[str, Any], tokens: int) -> str:
    """Return an answer to a question about a prompt of `tokens` tokens, in one line."""
    held = [f"{replica} {match['longest_matched']}" for replica, match in sorted(answer["instances"].items())]
    return (
        f"{', '.join(held) or 'nobody'}, of {tokens} tokens; as of {answer['index']['age_seconds']:.1f} s ago"
    )

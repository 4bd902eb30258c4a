"""Post what `kvlens doctor` finds to a webhook, once for each change. An example to copy and change.

    kvlens doctor --json | WEBHOOK_URL=https://hooks.slack.com/... python doctor_webhook.py STATE_FILE

For cron: it posts problems when they come, when others come, and when they are gone. `{"text": ...}` is what
Slack, Mattermost and Rocket.Chat take. No answer of the doctor is a problem, too.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from pathlib import Path
from typing import Any

SHOWN_SUBJECTS = 5


def problems(answer: str) -> dict[str, str]:
    """Return {what identifies a problem: its text} of what the doctor printed."""
    try:
        findings = json.loads(answer)["findings"]
    except (ValueError, KeyError, TypeError):
        return {"no-answer": "kvlens doctor gave no answer: run it by hand"}
    wrong = [finding for finding in findings if finding["severity"] == "problem"]
    return {" ".join([finding["code"], *finding["subjects"]]): _text(finding) for finding in wrong}


def _text(finding: dict[str, Any]) -> str:
    subjects = finding["subjects"]
    others = f" and {len(subjects) - SHOWN_SUBJECTS} more" if len(subjects) > SHOWN_SUBJECTS else ""
    where = f" (at {', '.join(subjects[:SHOWN_SUBJECTS])}{others})" if subjects else ""
    remedy = f". Do: {finding['remedy']}" if finding["remedy"] else ""
    return f"{finding['code']}: {finding['message']}{where}{remedy}"


def post(url: str, text: str) -> None:
    """Raises OSError: cron then mails it, and the next run tries again."""
    body = json.dumps({"text": text}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=20):
        pass


def main(answer: str, url: str, state: Path) -> None:
    found = problems(answer)
    before = state.read_text().splitlines() if state.exists() else []
    if sorted(found) == before:
        return
    post(url, "\n".join(f"kvlens: {text}" for text in found.values()) or "kvlens: no problems any more")
    state.write_text("".join(f"{key}\n" for key in sorted(found)))


if __name__ == "__main__":
    main(sys.stdin.read(), os.environ["WEBHOOK_URL"], Path(sys.argv[1]))

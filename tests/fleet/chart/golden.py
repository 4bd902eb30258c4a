"""`python -m tests.fleet.chart.golden` writes what helm renders of the chart to tests/data/chart."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from tests.fleet.chart.helm import Helm, manifests
from tests.fleet.real_parts import programs
from tests.support.chart import CASES, CHART, GOLDEN, JSON, NAMESPACE, case_values, digest, without_generated

DIGEST = GOLDEN / "chart.sha256"


def rendered_now(helm: Helm, kubectl: Path, case: str) -> JSON:
    """Return what helm makes of a case, as one list."""
    text = helm("template", "kvlens", str(CHART), "--namespace", NAMESPACE, values=case_values(case))
    return {"apiVersion": "v1", "kind": "List", "items": without_generated(manifests(kubectl, text))}


def as_text(document: JSON) -> str:
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    found = programs(("helm", "kubectl"))
    with tempfile.TemporaryDirectory() as home:
        helm = Helm(found["helm"], Path(home))
        for case in CASES:
            path = GOLDEN / f"{case}.json"
            path.write_text(as_text(rendered_now(helm, found["kubectl"], case)), "utf-8")
            sys.stdout.write(f"wrote {path}\n")
    DIGEST.write_text(f"{digest()}\n")


if __name__ == "__main__":
    main()

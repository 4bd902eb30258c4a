"""`make faults`: a seeded campaign of faults; exit status 1 with the seed on any difference or hang."""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import traceback
from pathlib import Path

from tests.system.faults.campaign.campaign import run
from tests.system.faults.campaign.kinds.catalogue import KINDS
from tests.system.faults.campaign.plan import plan


def main() -> int:
    options = argparse.ArgumentParser(prog="make faults", description=__doc__)
    options.add_argument("--seed", type=int, default=1, help="decides the plan and the traffic (1)")
    options.add_argument("--faults", type=int, default=100, help="how many (100)")
    options.add_argument("--kinds", default="", metavar="REGEX", help="only kinds whose name it matches")
    options.add_argument("--directory", type=Path, help="for data and logs; by default a new one, told")
    options.add_argument("--list", action="store_true", help="print the kinds and end")
    given = options.parse_args()
    kinds = [kind for kind in KINDS if re.search(given.kinds, kind.name)]
    if given.list or not kinds:
        for kind in kinds:
            tell(f"{kind.name} ({kind.part})")
        return 0 if kinds else 2
    # Neither this process nor one that it starts may meet another installation.
    for name in [name for name in os.environ if name.startswith("KVLENS_")]:
        del os.environ[name]
    directory = given.directory or Path(tempfile.mkdtemp(prefix="kvlens-faults-"))
    tell(f"seed {given.seed}, {given.faults} faults; data and logs in {directory}")
    try:
        run(plan(given.seed, given.faults, kinds), given.seed, directory, tell)
    except Exception:
        tell(traceback.format_exc())
        tell(f'FAILED: make faults ARGS="--seed {given.seed} --faults {given.faults}"; see {directory}')
        return 1
    tell(f"seed {given.seed}: no difference")
    return 0


def tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())

"""Compiles what kvlens compiles, so that tests which start processes side by side find it kept.

Run as a module before them: takes half a minute in a fresh checkout and some seconds afterwards.
"""

from __future__ import annotations

import gc
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context


def compile_connector() -> None:
    from connectors.receive.warming import warm_up

    warm_up()


def compile_worker() -> None:
    from pipeline.worker.warming import warm_up

    warm_up()


def compile_index() -> None:
    from pipeline.index.service import warm_up

    warm_up()


PARTS = compile_connector, compile_worker, compile_index


def main() -> None:
    # A process each, because compiling keeps the interpreter's lock; each imports its own part only. They are
    # short-lived, and looking for garbage takes a twelfth of their time.
    with ProcessPoolExecutor(2, mp_context=get_context("spawn"), initializer=gc.disable) as processes:
        for done in [processes.submit(part) for part in PARTS]:
            done.result()


if __name__ == "__main__":
    main()

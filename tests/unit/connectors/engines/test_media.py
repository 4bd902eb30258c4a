"""Medium names become canonical, and the spelling is kept where it says more."""

import pytest

from connectors.engines.catalogue import CATALOGUE
from connectors.engines.media import MAX_NAME_CHARACTERS


@pytest.mark.parametrize(
    ("raw", "medium", "kept"),
    [
        (None, "gpu", None),
        ("", "gpu", None),
        ("GPU", "gpu", None),
        ("CPU", "cpu", None),
        ("cpu", "cpu", "cpu"),
        ("CPU_PINNED", "cpu", "CPU_PINNED"),
        ("CPU_TIER1", "cpu", "CPU_TIER1"),
        ("DISK", "disk", None),
        ("STORAGE", "storage", None),
        ("FS", "fs", None),
        ("OBJ", "obj", None),
        ("EXTERNAL", "external", None),
        ("Nvme", "nvme", "Nvme"),
    ],
)
def test_names(raw: str | None, medium: str, kept: str | None) -> None:
    assert CATALOGUE.media.locate(raw)[:2] == (medium, kept)


def test_unknown_names_are_bounded() -> None:
    medium, kept, _ = CATALOGUE.media.locate("ß" * 10_000)
    assert medium == "ss" * (MAX_NAME_CHARACTERS // 2)
    assert kept == "ß" * MAX_NAME_CHARACTERS


@pytest.mark.parametrize(
    ("raw", "store_only"),
    [
        (None, False),
        ("GPU", False),
        ("CPU", False),
        ("cpu", True),
        ("Cpu", False),
        ("CPU_PINNED", False),
        ("STORAGE", True),
        ("storage", True),
        ("Fs", True),
        ("OBJ", True),
        ("DISK", False),
        ("nvme", False),
    ],
)
def test_tiers_whose_removals_nobody_announces(raw: str | None, store_only: bool) -> None:
    assert CATALOGUE.media.locate(raw)[2] == store_only

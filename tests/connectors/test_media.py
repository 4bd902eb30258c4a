"""Medium names become canonical, and the spelling is kept where it says more."""

import pytest

from connectors.media import MAX_NAME_CHARACTERS, canonical_medium


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
    assert canonical_medium(raw) == (medium, kept)


def test_unknown_names_are_bounded() -> None:
    medium, kept = canonical_medium("ß" * 10_000)
    assert medium == "ss" * (MAX_NAME_CHARACTERS // 2)
    assert kept == "ß" * MAX_NAME_CHARACTERS

"""Confines this process to the files it needs: a barrier behind the engine's rights that no SQL can get past.

Landlock (Linux 5.19 and newer) takes rights away from a process for good, without root. It covers threads
started later only, so it comes before the engine, which starts its own when it is imported.
"""

from __future__ import annotations

import ctypes
import os
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

import connectors
import pipeline
import schemas

# Numbers of the kernel's interface, the same on all architectures: include/uapi/linux/landlock.h.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_WHICH_VERSION = 1
_PATH_BENEATH, _NET_PORT = 1, 2
_NO_NEW_PRIVILEGES = 38

_WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 1, 1 << 2, 1 << 3
_READ = _READ_FILE | _READ_DIR
# Write, remove and make files, directories and links; move between directories; truncate.
_CHANGE = _WRITE_FILE | 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8 | 1 << 12 | 1 << 13 | 1 << 14
_BIND_PORT = 1 << 0
_SIGNALS_AND_SOCKETS = 3

_OF_VERSION = {2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
"""Rights over files that a version of Landlock knows; version 1 cannot move files between directories."""
_NEWEST_FILES = (1 << 16) - 1
_HAS_PORTS, _HAS_SCOPES = 4, 6

_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/share/zoneinfo")
_SYSTEM = (
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/timezone",
    "/sys/devices/system/cpu",
    "/sys/fs/cgroup",
    "/proc/meminfo",
    "/proc/stat",
    "/dev/urandom",
)
_OF_ITSELF = ("/proc/self/maps", "/proc/self/statm", "/proc/self/cgroup")
"""For the place of its stack, and for how much memory it has. Not `environ`, which holds passwords."""


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("ports", ctypes.c_uint64), ("scopes", ctypes.c_uint64))


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("directory", ctypes.c_int32))


class _PortRule(ctypes.Structure):
    _fields_ = (("allowed", ctypes.c_uint64), ("port", ctypes.c_uint64))


def confine(directory: Path, port: int) -> str | None:
    """Leave this process and its later threads one directory to write, libraries to read, one port to serve.

    It can then start no program; from version 4 of Landlock on it can connect to no TCP port, and from 6 on
    reach no other process. Return None, or why this machine cannot do it.
    """
    if not sys.platform.startswith("linux"):
        return "only Linux can"
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _WHICH_VERSION)
    if version < min(_OF_VERSION):
        return "this kernel has no Landlock, or one that is too old"
    files = _OF_VERSION.get(version, _NEWEST_FILES)
    ruleset = _Ruleset(
        files, 3 if version >= _HAS_PORTS else 0, _SIGNALS_AND_SOCKETS if version >= _HAS_SCOPES else 0
    )
    # Kernels refuse a structure longer than the one they know.
    size = 24 if version >= _HAS_SCOPES else 16 if version >= _HAS_PORTS else 8
    rules = _checked(libc.syscall(_CREATE_RULESET, ctypes.byref(ruleset), ctypes.c_size_t(size), 0))
    try:
        _allow(libc, rules, [directory], (_READ | _CHANGE) & files)
        _allow(libc, rules, [*_code(), *map(Path, _SYSTEM)], _READ)
        # The kernel creates these again once nothing has them open, and a rule does not cover the new ones.
        _allow(libc, rules, map(Path, _OF_ITSELF), _READ, stay_open=True)
        if version >= _HAS_PORTS:
            rule = _PortRule(_BIND_PORT, port)
            _checked(libc.syscall(_ADD_RULE, rules, _NET_PORT, ctypes.byref(rule), 0))
        _checked(libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
        _checked(libc.syscall(_RESTRICT_SELF, rules, 0))
    finally:
        os.close(rules)
    return None


def _code() -> Iterable[Path]:
    """Yield Python, its packages and the system's libraries; of a checkout, our packages only."""
    root = Path(__file__).resolve().parents[3]
    # Imported by now: a checkout cannot be listed from inside, and Python looks again where it changed.
    yield from (Path(package.__path__[0]) for package in (connectors, pipeline, schemas))
    places = sysconfig.get_paths()
    yield from (Path(places[name]) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    yield from (Path(base, "lib") for base in (sys.prefix, sys.base_prefix))
    # Python puts the working directory in front, which is the user's own.
    yield from (
        Path(entry) for entry in sys.path if entry and Path(entry).resolve() not in (root, Path.cwd())
    )
    yield from map(Path, _LIBRARIES)


def _allow(
    libc: ctypes.CDLL, rules: int, places: Iterable[Path], allowed: int, *, stay_open: bool = False
) -> None:
    for place in places:
        try:
            opened = os.open(place, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue  # not on this machine
        try:
            rule = _PathRule(allowed if place.is_dir() else allowed & (_WRITE_FILE | _READ_FILE), opened)
            _checked(libc.syscall(_ADD_RULE, rules, _PATH_BENEATH, ctypes.byref(rule), 0))
        finally:
            if not stay_open:
                os.close(opened)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"Landlock: {os.strerror(number)}")
    return result

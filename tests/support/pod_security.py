"""What a pod of the chart may do, as options of `podman run`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tests.support.chart import JSON

_FIELDS: dict[str, Callable[[Any], list[str]]] = {
    "runAsNonRoot": lambda wanted: _only(wanted, True),  # the user says which
    "runAsUser": lambda user: [f"--user={user}"],
    "runAsGroup": lambda group: [],  # with the user, below
    "fsGroup": lambda group: [f"--group-add={group}"],
    "seccompProfile": lambda profile: _only(profile, {"type": "RuntimeDefault"}),  # so is podman's
    "allowPrivilegeEscalation": lambda allowed: _only(allowed, False, "--security-opt=no-new-privileges"),
    "capabilities": lambda capabilities: _only(capabilities, {"drop": ["ALL"]}, "--cap-drop=ALL"),
    "readOnlyRootFilesystem": lambda wanted: _only(wanted, True, "--read-only", "--read-only-tmpfs=false"),
}


def options(template: JSON) -> list[str]:
    """Return the options for the only container of a pod; raises on what they cannot express."""
    spec = template["spec"]
    (container,) = spec["containers"]
    context = {**spec["securityContext"], **container["securityContext"]}
    context["runAsUser"] = f"{context['runAsUser']}:{context['runAsGroup']}"
    told = [option for field, value in context.items() for option in _FIELDS[field](value)]
    return [*told, *_scratch(spec, container)]


def _only(value: object, expected: object, *options: str) -> list[str]:
    assert value == expected, value
    return list(options)


def _scratch(spec: JSON, container: JSON) -> Iterator[str]:
    for volume in spec["volumes"]:
        if "emptyDir" in volume:
            (path,) = [
                mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == volume["name"]
            ]
            yield f"--tmpfs={path}:rw,size=64m,mode=1777"

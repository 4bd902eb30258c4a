"""Helm, and what makes the pods of a release."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fleet.chart.helm import Helm
from tests.fleet.chart.kubelet import Kubelet
from tests.fleet.control_plane import ControlPlane
from tests.fleet.real_parts import Programs


@pytest.fixture(scope="session")
def helm(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Without a cluster."""
    return Helm(programs["helm"], tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="session")
def kubelet(plane: ControlPlane) -> Iterator[Kubelet]:
    """Pods of workloads run, as far as the API server sees."""
    plane.start_controllers()
    with Kubelet(plane) as kubelet:
        yield kubelet

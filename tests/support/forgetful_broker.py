"""A broker that soon forgets who wrote last: after seconds what others do after a day or a week."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from pipeline.local.broker import embedded
from pipeline.local.broker.embedded import EmbeddedBroker
from pipeline.local.broker.properties import server_properties


class ForgetfulBroker(EmbeddedBroker):
    """An embedded broker that forgets ids of transactions and of producers that were not used for a while."""

    def __init__(self, *args: Any, forgets_ms: int, **options: Any) -> None:
        super().__init__(*args, **options)
        self.forgets_ms = forgets_ms

    @property
    def surely_forgotten_seconds(self) -> float:
        """After so long without use an id is certainly forgotten."""
        return 2 * self.forgets_ms / 1000 + 1.0

    def _spawn(self) -> None:
        look = str(self.forgets_ms // 5)
        more = {
            "transactional.id.expiration.ms": str(self.forgets_ms),
            "transaction.remove.expired.transaction.cleanup.interval.ms": look,
            "producer.id.expiration.ms": str(self.forgets_ms),
            "producer.id.expiration.check.interval.ms": look,
        }

        def forgetful(*args: Any) -> Mapping[str, str]:
            return {**server_properties(*args), **more}

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(embedded, "server_properties", forgetful)
            super()._spawn()

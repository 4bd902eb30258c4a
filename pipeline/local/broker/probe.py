"""Whether a broker answers as one: the protocol's own metadata request, not only an open port."""

from __future__ import annotations

import asyncio
import socket
import threading

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError

_TIMEOUT_MS = 5000


def answers(host: str, port: int) -> bool:
    """True when the node at host:port names itself as a live broker of its cluster.

    Blocks for a few seconds at most. The request has an event loop of
    its own, so a thread that runs one may call this.
    """
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    answer: list[bool] = []
    request = threading.Thread(target=lambda: answer.append(asyncio.run(_has_live_broker(host, port))))
    request.start()
    request.join()
    return answer == [True]


async def _has_live_broker(host: str, port: int) -> bool:
    client = AIOKafkaClient(bootstrap_servers=f"{host}:{port}", request_timeout_ms=_TIMEOUT_MS)
    try:
        await client.bootstrap()
        # Registered but not yet unfenced brokers are left out of the metadata.
        return any(broker.port == port for broker in client.cluster.brokers())
    except (KafkaError, OSError):
        return False
    finally:
        await client.close()

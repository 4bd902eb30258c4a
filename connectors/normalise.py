"""Turn an engine's payload into a normalised batch."""

from __future__ import annotations

from connectors.careful import decode_batch
from connectors.eras import StreamEra
from connectors.errors import FrameError
from schemas.events import Batch, Undecodable


class Normaliser:
    """Decodes the payloads of one source."""

    def __init__(self, *, max_frame_bytes: int, forward_session_ids: bool = False) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._forward_session_ids = forward_session_ids
        self._era = StreamEra()

    @property
    def engine(self) -> str:
        """`vllm`, `sglang`, or empty while nothing seen tells them apart."""
        return self._era.engine

    @property
    def wire_era(self) -> str:
        """`map`, `array-N`, `sglang-map`, `sglang-array-N`, or empty before the first store."""
        return self._era.wire_era

    def normalise(self, payload: bytes, *, seq: int, received_at: float, replayed: bool = False) -> Batch:
        """Return the batch in `payload`.

        Never raises for what an engine sends: bad events are Undecodable in their places, and a bad
        frame is a batch of one Undecodable at `received_at`.
        """
        try:
            if len(payload) > self._max_frame_bytes:
                raise FrameError("frame_too_large")
            return decode_batch(
                payload,
                seq=seq,
                received_at=received_at,
                replayed=replayed,
                forward_session_ids=self._forward_session_ids,
                era=self._era,
            )
        except FrameError as rejected:
            return Batch(seq, received_at, received_at, [Undecodable(rejected.reason, seq)], 0, replayed)

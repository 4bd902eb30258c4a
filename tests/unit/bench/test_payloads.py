"""The event that the speed of connectors is measured with has the bytes that it is said to have."""

from __future__ import annotations

import connector
import msgspec
import pytest


@pytest.mark.parametrize(("as_map", "size"), [(False, 6_196), (True, 6_294)], ids=["array", "map"])
def test_every_multimodal_event_has_its_size_and_is_what_it_is_called(as_map: bool, size: int) -> None:
    events = connector.multimodal(as_map=as_map)["multimodal"]
    assert len({*events}) == len(events) == 64
    assert {len(event) for event in events} == {size}
    for payload in events:
        _, [event], _ = msgspec.msgpack.decode(payload)
        assert isinstance(event, dict) is as_map
        hashes, _, tokens, block_size = (
            [event[key] for key in ("block_hashes", "parent_block_hash", "token_ids", "block_size")]
            if as_map
            else event[1:5]
        )
        keys = event["extra_keys"] if as_map else event[8]
        assert (len({*hashes}), len(tokens), block_size) == (32, 2_048, 64)
        assert len(keys) == 32
        assert len({name for found in keys if found for name, _ in found}) == 3

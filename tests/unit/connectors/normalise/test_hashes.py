"""Hashes of every form that engines publish join in one packed form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.normalise.errors import EventError
from connectors.normalise.hashes import pack_hash, pack_hashes
from schemas.hashes import unpack_hashes

integers = st.integers(-(2**63), 2**64 - 1)
digests = st.sampled_from([8, 16, 32]).flatmap(lambda size: st.binary(min_size=size, max_size=size))
hashes = st.lists(integers | digests, max_size=300)


def unsigned(value: int | bytes) -> int:
    return int(value[-8:].hex(), 16) if isinstance(value, bytes) else value % 2**64


def test_integers_are_taken_modulo_two_to_the_64() -> None:
    assert pack_hash(1).hex() == "0000000000000001"
    assert pack_hash(-1).hex() == "ffffffffffffffff"
    assert pack_hash(2**64 - 1).hex() == "ffffffffffffffff"
    assert pack_hash(-(2**63)).hex() == "8000000000000000"


def test_bytes_join_vllms_own_integer_form() -> None:
    digest = bytes(range(32))
    assert pack_hash(digest) == pack_hash(int.from_bytes(digest, "big") & (2**64 - 1)) == digest[24:]
    assert pack_hash(digest[:16]) == digest[8:16]


@pytest.mark.parametrize("length", [0, 1, 2, 7, 9, 31, 33])
def test_odd_and_short_digests_are_refused(length: int) -> None:
    for pack in (lambda v: pack_hash(v[0]), pack_hashes):
        with pytest.raises(EventError) as error:
            pack([bytes(length)])
        assert error.value.reason == "bad_hash_length"


@given(hashes)
def test_packing_keeps_every_value(values: list[int | bytes]) -> None:
    assert list(unpack_hashes(pack_hashes(values))) == [unsigned(value) for value in values]

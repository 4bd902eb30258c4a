"""What sources of LMCache are called: no server can have the name of a pool."""

from __future__ import annotations

from connectors.lmcache.decoder import Place
from connectors.lmcache.names import replica_id


def test_servers_and_pools_have_names_of_their_own() -> None:
    assert replica_id(Place("a", "", "m")) == "a@m"
    assert replica_id(Place("a", "fs", "m")) == "a:fs@m"
    assert replica_id(Place("", "s3", "m")) == "pool:s3@m"
    assert replica_id(Place("pools", "s3", "m")) == "pools:s3@m"


def test_nobody_takes_the_name_of_a_pool() -> None:
    servers = ["pool", "%pool", "%%pool", "pool:s3", "%pool:s3", "%"]
    pools = {replica_id(Place("", backend, "m")) for backend in ("s3", "fs", "")}
    taken = [replica_id(Place(server, backend, "m")) for server in servers for backend in ("s3", "")]
    assert not pools & {*taken}
    assert replica_id(Place("pool", "s3", "m")) == "%pool:s3@m"


def test_names_that_cannot_be_shown_are_none() -> None:
    assert replica_id(Place("a\x1b[31m", "", "m")) is None
    assert replica_id(Place("a" * 300, "", "m")) is None

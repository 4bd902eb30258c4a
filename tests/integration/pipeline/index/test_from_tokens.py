"""From token ids to the replicas that hold them: what `kvlens hash` prints is asked as it is."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from pipeline.cli.main import kvlens
from schemas.events import Stored
from schemas.hashing.sglang import Sglang
from schemas.hashing.vllm import Vllm
from tests.support.inputs.source_walks import pack
from tests.support.served_index import Served

TOKENS = list(range(1000, 1100))
ENGINES = {
    "--vllm 0.31.0": Vllm("0.31.0").words(TOKENS),
    "--vllm 0.31.0 --algorithm xxhash --seed 0": Vllm("0.31.0", algorithm="xxhash", seed="0").words(TOKENS),
    "--vllm 0.28.0 --algorithm sha256_cbor --seed 0": Vllm("0.28.0", 16, "sha256_cbor", "0").words(TOKENS),
    "--sglang 0.5.23 --block-size 16": Sglang("0.5.23", 16).words(TOKENS),
}


@pytest.mark.parametrize("arguments", ENGINES)
async def test_what_is_printed_is_a_question(arguments: str) -> None:
    words = ENGINES[arguments]
    served = Served()
    served.publish("whole", Stored(pack([word % 2**64 for word in words]), 16, 96))
    served.publish("beginning", Stored(pack([word % 2**64 for word in words[:4]]), 16, 64))
    served.publish("other", Stored(pack([17, 18]), 16, 32))
    served.catch_up()
    command = ["hash", "-", *arguments.split(), "--model", "m"]
    printed = CliRunner().invoke(kvlens, command, input=json.dumps(TOKENS))
    assert printed.exit_code == 0, printed.output
    await served.server.start()
    try:
        status, answer = await served.ask(printed.stdout.encode())
    finally:
        await served.server.stop()
    assert status == 200
    assert answer["scores"] == {"whole": {"0": 96}, "beginning": {"0": 64}}
    assert answer["instances"]["whole"]["ranks"]["0"]["matched_blocks"] == 6

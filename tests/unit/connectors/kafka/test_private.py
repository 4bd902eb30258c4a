"""What kvlens touches of aiokafka that its documentation does not promise, and that it is what it was."""

from __future__ import annotations

from tests.support.checkout import ROOT
from tests.support.foreign_source import digests, imported, touched

RESTS_ON = {
    "aiokafka.admin.client:AIOKafkaAdminClient.__init__": "33db456c15bf",
    "aiokafka.admin.client:AIOKafkaAdminClient._send_request_to_node": "b9bd5f34d606",
    "aiokafka.conn:AIOKafkaConnection._do_sasl_handshake": "7ce3e92cef61",
    "aiokafka.conn:AIOKafkaConnection.authenticator_oauth": "e844a4d5684b",
    "aiokafka.conn:AIOKafkaConnection.authenticator_plain": "77e492d2bfd0",
    "aiokafka.conn:AIOKafkaConnection.authenticator_scram": "6c0e58a0e352",
    "aiokafka.conn:OAuthAuthenticator": "c01a4b680a0e",
    "aiokafka.conn:collect_hosts": "3512767b3e94",
    "aiokafka.conn:create_conn": "d0b07cc0f6de",
    "aiokafka.consumer.consumer:AIOKafkaConsumer.start": "4b4c2a7c4187",
    "aiokafka.consumer.fetcher:FetchResult": "fa61b3894a7f",
    "aiokafka.consumer.fetcher:Fetcher._get_actions_per_node": "ac50ec79eb3f",
    "aiokafka.consumer.fetcher:Fetcher.fetched_records": "002f5b2f4ca3",
    "aiokafka.consumer.fetcher:PartitionRecords._consumer_record": "d8ace8ffb7f6",
    "aiokafka.consumer.fetcher:PartitionRecords._unpack_records": "40c81a2a6aac",
    "aiokafka.producer.message_accumulator:BatchBuilder": "99aef2c7e968",
    "aiokafka.producer.producer:AIOKafkaProducer.send_batch": "cfaf7859ba4e",
    "aiokafka.producer.transaction_manager:TransactionManager.wait_for_transaction_end": "b1f46cd7fa6b",
    "aiokafka.protocol.api:Request": "57a2e549df19",
    "aiokafka.protocol.api:RequestStruct": "934c5af9a764",
    "aiokafka.protocol.api:Response": "6951c0e9e615",
    "aiokafka.protocol.group:HeartbeatRequest": "d04ee0f90020",
    "aiokafka.protocol.group:LeaveGroupRequest": "5e3cd980659f",
    "aiokafka.protocol.transaction:EndTxnRequest": "606c6fa8a18f",
}
"""Digests of the sources of what `private.py` replaces, calls or sets in aiokafka 0.14.0, or what reads it.

If one differs, read what changed, see that `private.py` still does what it says (integration tests of
connectors/kafka and pipeline/worker), and write the new digest here."""
DOCUMENTED = {"aiokafka", "aiokafka.abc", "aiokafka.admin", "aiokafka.admin.config_resource"} | {
    f"aiokafka.{name}" for name in ("client", "errors", "helpers", "structs")
}
UNDOCUMENTED = {
    "connectors/kafka/private.py": {
        "aiokafka.conn",
        "aiokafka.consumer.fetcher",
        "aiokafka.producer.message_accumulator",
        "aiokafka.record",
    },
    # Shapes of Kafka's protocol, which aiokafka packs.
    "connectors/kafka/metadata_request.py": {
        "aiokafka.protocol.api",
        "aiokafka.protocol.metadata",
        "aiokafka.protocol.types",
    },
    "pipeline/kafka/membership.py": {"aiokafka.protocol.group"},
    "pipeline/kafka/transactions.py": {"aiokafka.protocol.transaction"},
}
OF_FAUST = {"pipeline/worker/consumer/transport.py"}
"""Touches Faust, by a list of its own."""


def test_what_it_rests_on_is_what_it_was() -> None:
    assert digests(RESTS_ON) == RESTS_ON


def test_no_other_module_touches_private_parts_or_imports_what_is_not_documented() -> None:
    undocumented: dict[str, set[str]] = {}
    for file in (file for room in ("connectors", "pipeline") for file in (ROOT / room).rglob("*.py")):
        name = str(file.relative_to(ROOT))
        of_aiokafka = {module for module in imported(file) if module.split(".")[0] == "aiokafka"}
        if of_aiokafka - DOCUMENTED:
            undocumented[name] = of_aiokafka - DOCUMENTED
        if of_aiokafka and name != "connectors/kafka/private.py" and name not in OF_FAUST:
            assert touched(file) == {}, name
    assert undocumented == UNDOCUMENTED

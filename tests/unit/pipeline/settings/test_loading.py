"""Settings: layers, and every kind of mistake refused with its path."""

from __future__ import annotations

import pytest

from pipeline.settings.loading import DEFAULT, ConfigurationError, load
from schemas.discovery_settings import BoundEndpoint, Discovery, DnsName
from schemas.settings import Settings

REPLICA = 'id = "a"\nmodel = "m"\nendpoint = "tcp://127.0.0.1:5557"\n'
ONE = f"[[replicas]]\n{REPLICA}"
DNS = '[[discovery.dns]]\nname = "engines"\nmodel = "m"\n'
SHARED = ONE + 'topic = "kv@a@m"\nshared_sequence = true\n'
PODS = '[[discovery.kubernetes]]\nselector = "app=vllm"\n'
BIND = '[[discovery.bind]]\nendpoint = "tcp://*:5557"\n'


def loaded(document: str | None = None, **environment: str):
    files = {"/secret": "s3cret\n"}

    def read(name: str) -> str:
        if name not in files:
            raise FileNotFoundError(2, "No such file or directory", name)
        return files[name]

    return load(document, "kvlens.toml", environment, read)


def test_nothing_given_is_the_defaults():
    result = loaded()
    assert result.settings == Settings()
    assert result.origin("kafka", "bootstrap_servers") == DEFAULT


def test_the_environment_wins_over_the_file_and_the_file_over_the_default():
    result = loaded(
        '[kafka]\nbootstrap_servers = "file:1"\ngroup = "mine"\n[worker]\ncheckpoint_seconds = 2\n',
        KVLENS_KAFKA__BOOTSTRAP_SERVERS="environment:1",
        KVLENS_WORKER__STOP_SECONDS="5.5",
        KVLENS_WORKER__METRICS_PORT="9000",
        KVLENS_CONNECTOR__FORWARD_SESSION_IDS="true",
        KVLENS_CONNECTOR__SESSION_KEY_FILE="/run/key",
        PATH="/bin",
    )
    settings = result.settings
    assert settings.kafka.bootstrap_servers == "environment:1"
    assert settings.kafka.group == "mine"
    assert (settings.worker.checkpoint_seconds, settings.worker.stop_seconds) == (2.0, 5.5)
    assert settings.worker.metrics_port == 9000
    assert settings.connector.forward_session_ids is True
    assert result.origin("kafka", "bootstrap_servers") == "KVLENS_KAFKA__BOOTSTRAP_SERVERS"
    assert result.origin("kafka", "group") == "kvlens.toml"
    assert result.origin("kafka", "compression") == DEFAULT


def test_replicas_come_from_the_file_or_as_json_from_the_environment():
    assert [replica.id for replica in loaded(ONE).settings.replicas] == ["a"]
    result = loaded(
        ONE, KVLENS_REPLICAS='[{"id": "b", "model": "m", "endpoint": "ipc:///tmp/x", "dp_ranks": 1}]'
    )
    assert [replica.id for replica in result.settings.replicas] == ["b"]
    assert result.origin("replicas") == "KVLENS_REPLICAS"


def test_engines_to_find_come_from_the_file_or_as_json_from_the_environment():
    settings = loaded(
        DNS + "replay_port = 5657\n" + BIND,
        KVLENS_DISCOVERY__BIND='[{"endpoint": "tcp://*:6000", "dp_ranks": 2}]',
    )
    assert settings.settings.discovery == Discovery(
        dns=(DnsName(name="engines", model="m", replay_port=5657),),
        bind=(BoundEndpoint(endpoint="tcp://*:6000", dp_ranks=2),),
    )
    assert settings.origin("discovery", "dns") == "kvlens.toml"
    assert settings.origin("discovery", "bind") == "KVLENS_DISCOVERY__BIND"


def test_a_secret_may_come_from_a_file():
    assert loaded(KVLENS_KAFKA__SASL_PASSWORD_FILE="/secret").settings.kafka.sasl_password == "s3cret"
    assert loaded(KVLENS_CLICKHOUSE__PASSWORD="plain").settings.clickhouse.password == "plain"


@pytest.mark.parametrize(
    "variable",
    [
        "KVLENS_SERVICE_HOST",
        "KVLENS_SERVICE_PORT",
        "KVLENS_SERVICE_PORT_HTTP",
        "KVLENS_CONNECTOR_PORT_8000_TCP_ADDR",
        "KVLENS_WORKER_PORT",
        "KVLENS_CONFIG",
    ],
)
def test_variables_that_are_no_settings_of_ours_are_left_alone(variable: str):
    assert loaded(**{variable: "tcp://10.0.0.1:80"}).settings == Settings()


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("[kafka", "not valid TOML: Expected ']' at the end of a table declaration (at end of document)"),
        ("[kafak]", "there is no section [kafak]; did you mean [kafka]?"),
        ("[kafka]\ntopic = 1", "[kafka] has no key `topic`; docs/configuration.md lists them"),
        ("[kafka]\ngroup = 1", "kafka.group: expected text, got a whole number"),
        ('[kafka]\ncompression = "gzip"', "kafka.compression: 'gzip' is not one of none, zstd"),
        ("[worker]\ncheckpoint_seconds = 0", "worker.checkpoint_seconds: expected a number above 0"),
        ("[worker]\nstop_seconds = inf", "worker.stop_seconds: expected a finite number"),
        (
            '[[models]]\nname = "m"\ngpu_hour_price = inf',
            "`gpu_hour_price` of [[models]] number 1: expected a finite number",
        ),
        (ONE + "dp_ranks = 0", "`dp_ranks` of [[replicas]] number 1: expected a whole number of at least 1"),
        ('[[replicas]]\nid = "a"', "[[replicas]] number 1 lacks the key `model`"),
        (
            2 * '[[prefixes]]\nfirst_block = "00000000000000ab"\nname = "a"\n',
            "`first_block` of [[prefixes]] number 2: first block 00000000000000ab has two names",
        ),
        (
            '[[models]]\nname = "m"\nkv_bytes_per_token = 1\n[[models]]\nname = "m"\ngpu_hour_price = 2',
            "`name` of [[models]] number 2: model 'm' has two blocks",
        ),
        (ONE + ONE.replace("5557", "5558"), "`id` of [[replicas]] number 2: replica id 'a' is used twice"),
        (
            ONE + "dp_ranks = 4\n" + ONE.replace('"a"', '"b"').replace("5557", "5560"),
            "`endpoint` of [[replicas]] number 2: tcp://127.0.0.1:5560 is also an address of `endpoint` of "
            "[[replicas]] number 1",
        ),
        (
            ONE + 'replay_endpoint = "tcp://127.0.0.1:5557"',
            "`replay_endpoint` of [[replicas]] number 1: tcp://127.0.0.1:5557 is also an address of "
            "`endpoint` of [[replicas]] number 1",
        ),
        (
            ONE.replace("5557", "65535") + "dp_ranks = 2",
            "`endpoint` of [[replicas]] number 1: rank 1 would have port 65536, above 65535",
        ),
        (
            ONE.replace(":5557", ""),
            "`endpoint` of [[replicas]] number 1: expected tcp://host:port with a port from 1 to 65535, "
            "got tcp://127.0.0.1",
        ),
        (
            ONE.replace("tcp://127.0.0.1:5557", "ipc:///tmp/a")
            + 'dp_ranks = 2\n[[replicas]]\nid = "b"\nmodel = "m"\nendpoint = "ipc:///tmp/a_dp1"',
            "`endpoint` of [[replicas]] number 2: ipc:///tmp/a_dp1 is also an address of `endpoint` of "
            "[[replicas]] number 1",
        ),
        (ONE + '[index]\nshare = "8/9"', "index.share: of 8 partitions none is left for share 8"),
        (
            ONE + "shared_sequence = true",
            "`topic` of [[replicas]] number 1: with shared_sequence the topic of the emitter is needed",
        ),
        (
            SHARED + 'replay_endpoint = "tcp://127.0.0.1:5657"',
            "`replay_endpoint` of [[replicas]] number 1: nobody replays a shared sequence",
        ),
        (
            SHARED + SHARED.replace('"a"', '"b"'),
            "`topic` of [[replicas]] number 2: topic 'kv@a@m' of tcp://127.0.0.1:5557 is used twice",
        ),
        (
            SHARED + ONE.replace('"a"', '"b"'),
            "`endpoint` of [[replicas]] number 2: tcp://127.0.0.1:5557 is also an address of `endpoint` of "
            "[[replicas]] number 1",
        ),
        (
            '[kafka]\nbootstrap_servers = "a:9092,b:kafka"',
            "kafka.bootstrap_servers: expected host:port, or several with commas, ports from 1 to 65535, "
            "got 'a:9092,b:kafka'",
        ),
        (
            "[connector]\nforward_session_ids = true",
            "connector.forward_session_ids: session ids leave as keyed hashes only, which needs a "
            "session_key_file",
        ),
        (
            "[connector]\nforward_salts = true",
            "connector.forward_salts: salts leave as keyed hashes only, which needs a session_key_file",
        ),
        (
            '[connector]\nshard = "2/2"',
            "connector.shard: shard 2/2: the first number counts from 0 and is smaller than the second",
        ),
        (DNS + 'family = "ipv5"', "`family` of [[discovery.dns]] number 1: 'ipv5' is not one of ipv4, ipv6"),
        (
            DNS + DNS.replace('"engines"', '"Engines"') + "port = 5556\ndp_ranks = 2",
            "`port` of [[discovery.dns]] number 2: port 5557 of Engines is also in `port` of "
            "[[discovery.dns]] number 1",
        ),
        (
            DNS + "port = 65535\ndp_ranks = 3",
            "`port` of [[discovery.dns]] number 1: rank 2 would have port 65537, above 65535",
        ),
        (
            DNS + "replay_port = 5557",
            "`replay_port` of [[discovery.dns]] number 1: port 5557 of engines is also in `port` of "
            "[[discovery.dns]] number 1",
        ),
        (
            "[[discovery.kubernetes]]",
            "`selector` of [[discovery.kubernetes]] number 1: the preset vllm knows no labels; name those "
            "of your engines",
        ),
        (
            PODS + 'namespaces = ["*", "ml"]',
            "`namespaces` of [[discovery.kubernetes]] number 1: `*` stands for all namespaces and "
            "therefore alone",
        ),
        (
            PODS + PODS + "replay_port = 65535\ndp_ranks = 2",
            "`replay_port` of [[discovery.kubernetes]] number 2: rank 1 would have port 65536, above 65535",
        ),
        (
            BIND + "dp_ranks = 2\n" + BIND.replace("5557", "5558"),
            "`endpoint` of [[discovery.bind]] number 2: port 5558 is also one of `endpoint` of "
            "[[discovery.bind]] number 1",
        ),
        (
            BIND + 'replay_endpoint = "tcp://{host}:5657"',
            "`replay_endpoint` of [[discovery.bind]] number 1: expected {pod} and no other placeholder, "
            "got tcp://{host}:5657",
        ),
        (
            BIND + 'metrics_url = "http://{pod:8000}/metrics"',
            "`metrics_url` of [[discovery.bind]] number 1: expected {pod} and no other placeholder, "
            "got http://{pod:8000}/metrics",
        ),
        (
            BIND + 'replay_endpoint = "tcp://{pod!x}:5657"',
            "`replay_endpoint` of [[discovery.bind]] number 1: expected {pod} and no other placeholder, "
            "got tcp://{pod!x}:5657",
        ),
        (
            BIND + 'replay_endpoint = "tcp://{pod}"',
            "`replay_endpoint` of [[discovery.bind]] number 1: expected tcp://host:port with a port from 1 "
            "to 65535, got tcp://pod",
        ),
    ],
)
def test_mistakes_in_the_file_are_refused_with_their_path(document: str, message: str):
    with pytest.raises(ConfigurationError) as refused:
        loaded(document)
    assert str(refused.value) == f"kvlens.toml: {message}"


@pytest.mark.parametrize("document", [f"[kafka]\npartitions = {'9' * 5000}", f"x = {'[' * 5000}"])
def test_a_file_that_exceeds_what_python_reads_is_refused_like_any_other(document: str):
    with pytest.raises(ConfigurationError, match=r"^kvlens\.toml: not valid TOML: "):
        loaded(document)


@pytest.mark.parametrize("port", ["9" * 5000, "\N{ARABIC-INDIC DIGIT THREE}"])
def test_a_port_has_up_to_five_plain_digits(port: str):
    with pytest.raises(ConfigurationError, match="expected tcp://host:port with a port from 1 to 65535"):
        loaded(ONE.replace("5557", port))


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (
            {"KVLENS_KAFKA__BOOTSTRAP_SERVER": "a:1"},
            "KVLENS_KAFKA__BOOTSTRAP_SERVER: no such setting; did you mean "
            "`KVLENS_KAFKA__BOOTSTRAP_SERVERS`?",
        ),
        (
            {"KVLENS_PAGE_PORT": "9000"},
            "KVLENS_PAGE_PORT: no such setting; did you mean `KVLENS_PAGE__PORT`?",
        ),
        (
            {"KVLENS_KAFKA__GROUP_FILE": "/secret"},
            "KVLENS_KAFKA__GROUP_FILE: no such setting; did you mean `KVLENS_KAFKA__GROUP`?",
        ),
        (
            {"KVLENS_WORKER__METRICS_PORT": "x"},
            "KVLENS_WORKER__METRICS_PORT: expected a whole number, got text",
        ),
        (
            {"KVLENS_WORKER__METRICS_PORT": "70000"},
            "KVLENS_WORKER__METRICS_PORT: expected a whole number of at most 65535",
        ),
        ({"KVLENS_WORKER__STOP_SECONDS": "inf"}, "KVLENS_WORKER__STOP_SECONDS: expected a finite number"),
        (
            {"KVLENS_REPLICAS": '[{"id": 1}]'},
            "KVLENS_REPLICAS: `id` of entry 1: expected text, got a whole number",
        ),
        ({"KVLENS_REPLICAS": '["\udcff"]'}, "KVLENS_REPLICAS: not UTF-8 text"),
        (
            {"KVLENS_KAFKA__SASL_PASSWORD_FILE": "/gone"},
            "KVLENS_KAFKA__SASL_PASSWORD_FILE: cannot read /gone: No such file or directory",
        ),
        (
            {"KVLENS_KAFKA__SASL_PASSWORD_FILE": "/secret", "KVLENS_KAFKA__SASL_PASSWORD": "x"},
            "KVLENS_KAFKA__SASL_PASSWORD_FILE: KVLENS_KAFKA__SASL_PASSWORD is set too; keep one of them",
        ),
    ],
)
def test_mistakes_in_the_environment_are_refused_with_the_variable(environment: dict[str, str], message: str):
    with pytest.raises(ConfigurationError) as refused:
        loaded(**environment)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    "servers",
    ["a", "a:1", "a-b.c_d:65535, b:2", "10.0.0.1:9092", "[::1]:9092", "[fe80::1]", "::1", "2001:db8::7"],
)
def test_addresses_of_brokers_that_kafkas_client_takes_are_taken(servers: str):
    assert loaded(f'[kafka]\nbootstrap_servers = "{servers}"').settings.kafka.bootstrap_servers == servers


@pytest.mark.parametrize(
    "servers", ["kafka://a:9092", "a:0", "a:70000", "a:9092,", "a:b", "a b", ":9092", ","]
)
def test_addresses_of_brokers_that_cannot_be_any_are_refused(servers: str):
    with pytest.raises(ConfigurationError, match=r"kafka\.bootstrap_servers: expected host:port"):
        loaded(f'[kafka]\nbootstrap_servers = "{servers}"')


def test_replicated_tables_need_a_cluster() -> None:
    given = {"KVLENS_CLICKHOUSE__ENGINES": "replicated"}
    with pytest.raises(ConfigurationError, match=r"needs clickhouse\.cluster"):
        load(None, "", given, str)
    loaded = load(None, "", {**given, "KVLENS_CLICKHOUSE__CLUSTER": "main"}, str)
    assert loaded.settings.clickhouse.cluster == "main"

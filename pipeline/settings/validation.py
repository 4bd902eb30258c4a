"""Finds settings that clash although each one is valid: ids, addresses, shards."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from urllib.parse import urlsplit

from pipeline.settings.problem import SettingsProblem, unprintable
from schemas.settings import Discovery, Prefix, Replica, Settings, rank_endpoint, shard_numbers

MAX_PORT = 65535
MAX_MODEL = 200
"""Characters of a model's name."""
_SERVER = re.compile(r"(?:\[[\w:.%]+\]|[\w.-]+)(?::(\d{1,5}))?|[0-9A-Fa-f]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*")
"""host, host:port, [address]:port; without brackets an IPv6 address has no port."""


def settings_problem(settings: Settings) -> SettingsProblem | None:
    """Return the first problem; None when there is none."""
    if (problem := unprintable(settings)) is not None:
        return problem
    try:
        shard_numbers(settings.connector.shard)
    except ValueError as error:
        return SettingsProblem(("connector", "shard"), f"{error} - at `$.connector.shard`")
    if (text := _share_problem(settings)) is not None:
        return SettingsProblem(("index", "share"), f"{text} - at `$.index.share`")
    if settings.connector.forward_session_ids and not settings.connector.session_key_file:
        return SettingsProblem(
            ("connector", "forward_session_ids"),
            "session ids leave as keyed hashes only, which needs a session_key_file"
            " - at `$.connector.forward_session_ids`",
        )
    if settings.connector.forward_salts and not settings.connector.session_key_file:
        return SettingsProblem(
            ("connector", "forward_salts"),
            "salts leave as keyed hashes only, which needs a session_key_file"
            " - at `$.connector.forward_salts`",
        )
    if (text := _bootstrap_problem(settings.kafka.bootstrap_servers)) is not None:
        return SettingsProblem(("kafka", "bootstrap_servers"), f"{text} - at `$.kafka.bootstrap_servers`")
    if settings.kafka.sasl_mechanism == "OAUTHBEARER" and not settings.kafka.sasl_token_file:
        text = "OAUTHBEARER needs the file of its token - at `$.kafka.sasl_token_file`"
        return SettingsProblem(("kafka", "sasl_mechanism"), text)
    if settings.clickhouse.engines != "plain" and not settings.clickhouse.cluster:
        text = f"{settings.clickhouse.engines!r} needs clickhouse.cluster - at `$.clickhouse.engines`"
        return SettingsProblem(("clickhouse", "engines"), text)
    if settings.clickhouse.url:
        if (text := store_address_problem(settings.clickhouse.url)) is not None:
            return SettingsProblem(("clickhouse", "url"), f"{text} - at `$.clickhouse.url`")
    elif not settings.kafka.figures:
        text = "without clickhouse.url figures are all that workers write - at `$.kafka.figures`"
        return SettingsProblem(("kafka", "figures"), text)
    if (problem := _lmcache_problem(settings)) is not None:
        return problem
    if (text := next(_prefix_problems(settings.prefixes), None)) is not None:
        return SettingsProblem(("prefixes",), text)
    if (text := _replica_problem(settings.replicas)) is not None:
        return SettingsProblem(("replicas",), text)
    if (text := next(_dns_problems(settings.discovery), None)) is not None:
        return SettingsProblem(("discovery", "dns"), text)
    if (text := next(_kubernetes_problems(settings.discovery), None)) is not None:
        return SettingsProblem(("discovery", "kubernetes"), text)
    if (text := next(_bind_problems(settings.discovery), None)) is not None:
        return SettingsProblem(("discovery", "bind"), text)
    return None


def _share_problem(settings: Settings) -> str | None:
    try:
        number, _ = shard_numbers(settings.index.share)
    except ValueError as error:
        return str(error)
    if number >= settings.kafka.partitions:
        return f"of {settings.kafka.partitions} partitions none is left for share {number}"
    return None


def _lmcache_problem(settings: Settings) -> SettingsProblem | None:
    lmcache, login = settings.lmcache, settings.lmcache_kafka
    if (lmcache.topic or lmcache.port) and not lmcache.model_names:
        text = "name the models of the servers - at `$.lmcache.models`"
        return SettingsProblem(("lmcache", "models"), text)
    if any(len(name) > MAX_MODEL for name in lmcache.model_names):
        text = f"expected names of at most {MAX_MODEL} characters - at `$.lmcache.models`"
        return SettingsProblem(("lmcache", "models"), text)
    problem = _bootstrap_problem(login.bootstrap_servers)
    if problem is not None:
        path = ("lmcache_kafka", "bootstrap_servers")
        return SettingsProblem(path, f"{problem} - at `$.lmcache_kafka.bootstrap_servers`")
    if login.sasl_mechanism == "OAUTHBEARER" and not login.sasl_token_file:
        text = "OAUTHBEARER needs the file of its token - at `$.lmcache_kafka.sasl_token_file`"
        return SettingsProblem(("lmcache_kafka", "sasl_mechanism"), text)
    return None


def _bootstrap_problem(servers: str) -> str | None:
    for server in servers.split(","):
        found = _SERVER.fullmatch(server.strip())
        if found is None or (found[1] is not None and not 1 <= int(found[1]) <= MAX_PORT):
            return f"expected host:port, or several with commas, ports from 1 to {MAX_PORT}, got {servers!r}"
    return None


def store_address_problem(url: str) -> str | None:
    """Return what of an address would not be used, without what may be secret in it."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:  # of brackets, or a port that is no number or too large
        return f"expected http://host:port or https://host:port, with a port from 1 to {MAX_PORT}"
    if "@" in parts.netloc:
        return "an address has no login: name it in clickhouse.username and clickhouse.password_file"
    if parts.query or parts.fragment:
        return (
            "an address has neither ? nor #: a login goes into clickhouse.username and "
            "clickhouse.password_file, the database into clickhouse.database"
        )
    if not parts.hostname or port == 0:
        return f"expected http://host:port or https://host:port, with a port from 1 to {MAX_PORT}"
    return None


def _prefix_problems(prefixes: tuple[Prefix, ...]) -> Iterator[str]:
    named: set[str] = set()
    for number, prefix in enumerate(prefixes):
        if prefix.first_block in named:
            yield f"first block {prefix.first_block} has two names - at `$.prefixes[{number}].first_block`"
        named.add(prefix.first_block)


def _replica_problem(replicas: tuple[Replica, ...]) -> str | None:
    """Return the first clash among the replicas, with its path; None when there is none."""
    ids: set[str] = set()
    taken: dict[str, str] = {}
    shared: dict[tuple[str, range], set[str]] = {}
    for number, replica in enumerate(replicas):
        path = f"$.replicas[{number}]"
        if replica.id in ids:
            return f"replica id {replica.id!r} is used twice - at `{path}.id`"
        ids.add(replica.id)
        if replica.shared_sequence:
            if not replica.topic:
                return f"with shared_sequence the topic of the emitter is needed - at `{path}.topic`"
            if replica.replay_endpoint is not None:
                return f"nobody replays a shared sequence - at `{path}.replay_endpoint`"
            topics = shared.setdefault((replica.endpoint, replica.ranks), set())
            if replica.topic in topics:
                return f"topic {replica.topic!r} of {replica.endpoint} is used twice - at `{path}.topic`"
            topics.add(replica.topic)
            if len(topics) > 1:
                continue
        for key in ("endpoint", "replay_endpoint"):
            endpoint = getattr(replica, key)
            if endpoint is None:
                continue
            addresses = _rank_addresses(endpoint, replica.ranks)
            if isinstance(addresses, str):
                return f"{addresses} - at `{path}.{key}`"
            for address in addresses:
                if address in taken:
                    return f"{address} is also an address of {taken[address]} - at `{path}.{key}`"
            taken.update(dict.fromkeys(addresses, f"`{path}.{key}`"))
    return None


def _rank_addresses(endpoint: str, ranks: range) -> list[str] | str:
    """Return one address per rank, or the problem."""
    if endpoint.startswith("ipc://"):
        return [rank_endpoint(endpoint, rank) for rank in ranks]
    host, colon, port = endpoint.removeprefix("tcp://").rpartition(":")
    if not (colon and host and port.isdecimal() and 1 <= int(port) <= MAX_PORT):
        return f"expected tcp://host:port with a port from 1 to {MAX_PORT}, got {endpoint}"
    if int(port) + ranks[-1] > MAX_PORT:
        return f"rank {ranks[-1]} would have port {int(port) + ranks[-1]}, above {MAX_PORT}"
    return [rank_endpoint(endpoint, rank) for rank in ranks]


def _dns_problems(discovery: Discovery) -> Iterator[str]:
    """Yield overlapping ports: an engine would be read twice, or its replay socket as a stream."""
    taken: dict[tuple[str, str, int], str] = {}
    for number, name in enumerate(discovery.dns):
        for key in ("port", "replay_port"):
            first = getattr(name, key)
            if first is None:
                continue
            path = f"$.discovery.dns[{number}].{key}"
            if first + name.dp_ranks - 1 > MAX_PORT:
                last = first + name.dp_ranks - 1
                yield f"rank {name.dp_ranks - 1} would have port {last}, above {MAX_PORT} - at `{path}`"
            ports = [(name.name.lower(), name.family, first + rank) for rank in range(name.dp_ranks)]
            for port in ports:
                if port in taken:
                    yield f"port {port[2]} of {name.name} is also in {taken[port]} - at `{path}`"
            taken.update(dict.fromkeys(ports, f"`{path}`"))


def _kubernetes_problems(discovery: Discovery) -> Iterator[str]:
    for number, entry in enumerate(discovery.kubernetes):
        path = f"$.discovery.kubernetes[{number}]"
        if not entry.selector and entry.preset == "vllm":
            yield f"the preset vllm knows no labels; name those of your engines - at `{path}.selector`"
        if "*" in entry.namespaces and len(entry.namespaces) > 1:
            yield f"`*` stands for all namespaces and therefore alone - at `{path}.namespaces`"
        for key in ("port", "port_base", "replay_port"):
            first = getattr(entry, key)
            if first is not None and first + entry.dp_ranks - 1 > MAX_PORT:
                rank = entry.dp_ranks - 1
                yield f"rank {rank} would have port {first + rank}, above {MAX_PORT} - at `{path}.{key}`"


def _bind_problems(discovery: Discovery) -> Iterator[str]:
    taken: dict[int, str] = {}
    for number, bound in enumerate(discovery.bind):
        path = f"$.discovery.bind[{number}]"
        addresses = _rank_addresses(bound.endpoint, range(bound.dp_ranks))
        if isinstance(addresses, str):
            yield f"{addresses} - at `{path}.endpoint`"
            continue
        for address in addresses:
            port = int(address.rpartition(":")[2])
            if port in taken:
                yield f"port {port} is also one of {taken[port]} - at `{path}.endpoint`"
            taken[port] = f"`{path}.endpoint`"
        for key in ("replay_endpoint", "metrics_url"):
            template = getattr(bound, key)
            if template is not None and not _only_names_pod(template):
                yield f"expected {{pod}} and no other placeholder, got {template} - at `{path}.{key}`"
        if bound.replay_endpoint is not None and _only_names_pod(bound.replay_endpoint):
            example = _rank_addresses(bound.replay_endpoint.format(pod="pod"), range(bound.dp_ranks))
            if isinstance(example, str):
                yield f"{example} - at `{path}.replay_endpoint`"


def _only_names_pod(template: str) -> bool:
    try:
        fields = [field for _, field, _, _ in string.Formatter().parse(template)]
    except ValueError:
        return False
    return [field for field in fields if field is not None] == ["pod"]

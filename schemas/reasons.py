"""Bounded reasons: every loss, skip and end has exactly one of these names."""

from typing import Literal

UndecodableReason = Literal[
    "frame_count",  # not topic, sequence, payload
    "bad_seq",  # sequence frame is not eight bytes
    "frame_too_large",  # beyond `connector.max_frame_bytes`, or too dear to decode
    "not_msgpack",  # no valid MessagePack, or not one value
    "not_an_envelope",  # neither [ts, events, ...] nor {"ts":, "events":}
    "bad_timestamp",  # the envelope's time is no finite number
    "missing_type",
    "type_not_string",
    "unknown_type",
    "truncated_tuple",  # an array event without a required field
    "missing_field",  # a map event without a required field
    "bad_block_hashes",  # no list
    "nil_hash",
    "bad_hash_type",  # neither integer nor bytes
    "bad_hash_length",  # bytes of odd length, or fewer than eight
    "bad_parent_hash",  # of a wrong type or length
    "bad_block_size",  # negative, or no integer
    "bad_medium",  # no text, or of more than 1,024 characters
    "bad_group",  # negative, or no integer
    "bad_field_type",  # any other of a wrong type, or a text of more than 1,024 characters
    "invalid_utf8",
    "no_identity",  # neither hashes nor a key say which block an event is of
    "no_salt_key",  # an object under a cache salt, without `lmcache.salt_key_file`
]

GapReason = Literal[
    "replay_not_configured",  # the replica has no replay endpoint
    "replay_truncated",  # the engine's buffer does not reach back so far
    "replay_holes",  # the replay itself lacked batches
    "replay_timeout",  # the engine did not answer in time
    "unconfirmed",  # nothing is missing, but the engine did not show the last batch of the log
]

ReplayOutcome = Literal[
    "end",  # the engine said that this was all
    "timeout",  # nothing more came for too long
    "unreachable",  # nobody listens at the endpoint
    "enough",  # the rest of the answer was of no use
    "endless",  # more than any engine keeps; the rest is asked for again
]

LeftOutReason = Literal[
    "backlog",  # live, without room or use to wait; it is asked for again
    "past_life",  # live, of a session that had ended
    "too_late",  # live, after it had been given up as lost
    "paused",  # live, of an engine that connects to us, faster than its share is read
    "disordered",  # out of order, repeated, or with an impossible number
]

Remark = Literal[
    "unknown_type",  # events of an unknown type; behind the colon its name
    "other_rank",  # batches say another rank than the settings: that behind the colon
    "mixed_ranks",  # batches of one stream say several
    "no_identity",  # stores do not say which blocks they are of
    "no_sequence",  # messages without sequence numbers: no loss shows
    "no_salt_key",  # objects under cache salts are left out without `lmcache.salt_key_file`
    "contradiction",  # a block left that was never there, though every batch before is known
    "made_up_id",  # a server without an id: after a restart it is another replica
    "loads_stay",  # what a server loaded from storage (left out) stays in its memory for long
]
"""What is unusual about a stream, whether or not it costs trust."""

ClosedReason = Literal[
    "restarted",  # the engine began a new session
    "removed",  # the replica is no longer configured or discovered
    "silent",  # neither connected nor heard for too long
]

ReportRefusal = Literal[
    "malformed",  # no JSON object with batches
    "bad_batch",  # a field of a batch is missing, of a wrong type, or beyond its bounds
    "unknown_model",  # objects of a model that `lmcache.models` does not name
    "bad_name",  # of a server or a storage: unprintable, or too long for an id
    "replica_id_taken",  # by a replica that is configured, or another server's storage
    "too_many_sources",  # beyond 2,000: servers' memories and storages, of each model
    "too_large",  # more bytes than `connector.max_frame_bytes`
    "slow_body",
    "busy",  # Kafka does not keep up, or many requests are under way
    "no_token",  # none, or a wrong one
    "foreign_page",  # by a page of another site, or `Host` is not loopback, where no token is needed
    "content_type",  # not JSON, but what browsers send for any page, where no token is needed
]
"""Why what a server of LMCache reports, or a part of it, is left out."""

SetAsideReason = Literal[
    "no_value",
    "malformed",  # no valid MessagePack, or JSON where the header says so
    "invalid_utf8",
    "too_deep",  # nested deeper than any record
    "not_a_record",  # a field is missing, of a wrong type, or beyond its bounds
    "wrong_partition",  # not that of its replica
    "bad_time",  # a notice at an impossible time, or a choice a day away from its record's
    "backward_gap",  # a gap that ends before it begins
    "uneven_columns",  # packed columns of different lengths or broken entries
    "bad_change",  # a change of residency of no known kind, time or adapter
    "bad_decision",  # a shard's decision of no run or without an answer
    "bad_choice",  # a choice whose match is longer than the longest one
]

ScrapeFailure = Literal[
    "unreachable",
    "timeout",  # no whole page within two seconds
    "http_status",  # an answer that is no page
    "too_large",  # more bytes, lines or samples than a page may have
    "not_prometheus",  # in another format, or compressed
]

FigureRefusal = Literal[
    "not_a_number",  # no finite number, or no whole one where it has to be
    "negative",
    "too_large",  # beyond what the records' field holds
    "ambiguous",  # several samples: of several engines, or contradictory
    "bad_rank",  # no number, or beyond all ranks
]

KubernetesFailure = Literal[
    "no_credentials",  # no address, token, certificates or namespace to use
    "unreachable",
    "timeout",
    "unauthorised",  # HTTP 401: no token of a ServiceAccount, or an expired one
    "forbidden",  # HTTP 403: the ServiceAccount may not list or watch pods there
    "expired",  # the server no longer has the state that the watch asked for
    "http_status",  # another answer
    "malformed",  # not what the API promises
    "too_large",  # an answer, or a line of a watch, beyond its bound
]
"""Why pods could not be listed or watched; it is tried again."""

PodRefusal = Literal[
    "no_model",
    "bad_model",  # longer than 200 characters, or unprintable
    "bad_annotation",  # one of ours, or `index_label`'s, is no number or out of bounds
    "bad_port",  # ports beyond 65535
    "publishes_elsewhere",  # its engine connects to another host instead of binding a port
    "replay_elsewhere",  # without the replay of some ranks: it is on another host
    "replay_port_taken",  # without its replay: the port is one of its event ports
    "bad_role",  # without its role: an annotation or label says none known here
    "too_many_replicas",  # beyond `max_replicas` of its entry
    "address_taken",  # a later pod has its address: its node must be gone
]
"""Why a pod is not read, or only in part."""

DescriptionFailure = Literal[
    "unreachable",
    "timeout",
    "http_status",  # HTTP 408, 429 or a failure of the server
    "refused",  # HTTP 401 or 403: it wants a login
    "too_large",  # more bytes than a description has
    "malformed",  # no description
]
"""Why an engine could not be asked where it publishes."""

OrderReason = Literal[
    "late",  # it came after later changes had counted: beyond `fleet.order_seconds`
    "too_many_wait",  # it counted before all earlier ones were known: `fleet.max_waiting`
    "undecided",  # a fill counted as computed: no shard said whether it was transferred
    "unknown_role",  # not known in time whether its engine receives KV: as if not
]
"""Why a change of residency did not count in the order of event time across partitions."""

LimitReason = Literal[
    "too_many_sizes",  # of media, groups and block sizes: `worker.max_pool_sizes`
    "too_many_blocks",  # resident at one source: `worker.max_blocks`
    "too_many_itemised",  # of hybrid groups, and with copies of several sizes: `worker.max_itemised_blocks`
]
"""Why the worker leaves out events of a source."""

WithoutContent = Literal[
    "not_told",  # the engine does not say its tokens, or keys of images and salts
    "parent_unknown",  # the content of the block before is unknown
    "other_tier",  # it came to another medium while the GPU did not hold it
]
"""Why a block has no content hash, and compares by the engine's own."""

GaveUpRepeats = Literal[
    "too_many",  # blocks of one medium and group: `worker.max_itemised_blocks`
    "several_sizes",  # a block was announced again in another size
]
"""Why the worker forgets what an engine announced again, so that no removal can prove that it was copies."""

QuestionRefusal = Literal[
    "malformed",  # no JSON
    "bad_question",  # a field is missing, of a wrong type, or beyond its bounds
    "bad_hash",  # neither a number of 64 bits nor the bytes of a digest
    "unknown_model",  # no replica of that model, hash domain and tenant
    "unknown_adapter",  # none of these used that adapter since it started
    "unknown_replica",  # none of them has that id
    "too_many_hashes",  # in one request: 65,536
    "too_large",  # a body of more bytes than that many hashes take
    "answer_too_large",  # more ranks in all answers than one request gets
    "slow_body",
    "slow_reader",  # the answer was not read in time; the connection is closed
    "busy",  # too many requests, or bytes of answers, are under way
    "not_ready",  # the index has not caught up with the log
    "no_token",  # none, or a wrong one
    "foreign_page",  # by a page of another site, or `Host` is not loopback, where no token is needed
    "content_type",  # not JSON, but what browsers send for any page, where no token is needed
    "too_many_choices",  # in one request: 1,000
    "choices_off",  # without `index.choices`, or the index shows the past
    "unacknowledged",  # by Kafka; choices posted again count once
    "http_status",  # no such page, or not by this method; or too many wrong tokens at once
    "failed",  # the index itself; its log says where
]
"""Why the index gives no answer, or takes no choices."""

NotJudged = Literal[
    "unknown_replica",  # none of that id in the model, hash domain and tenant
    "share",  # the index follows only a share of the replicas: another may be best
]
"""Why a router's choice is not compared with the best match."""

OtlpOutcome = Literal[
    "accepted",  # all figures
    "in_part",  # it rejected some
    "refused",  # it answered with an error, or redirected
    "unreachable",
    "slow",  # no answer in time
    "no_figures",  # ClickHouse did not answer
]

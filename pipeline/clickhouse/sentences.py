"""The texts of the answer and the findings: each written once, with arguments by name. Pure.

The view `briefing` decides which findings there are, and computes their figures and arguments; it refers to a
text as `{say:NAME}`, which becomes one SQL expression. So the page, Grafana, the terminal and queries of the
view show the same words. A new finding is a branch in `briefing.sql` and a line in TITLES and in ACTIONS.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pipeline.clickhouse.literals import quoted

Cases = Sequence[tuple[str, str]] | str
"""A text, or SQL conditions, each with its text: the first that holds decides, "" is for the rest."""

TITLES: dict[str, Cases] = {
    "routing": (
        (
            "number = 1",
            "Replicas that prefill computed what another of them held: {share} of the prefill of {model}",
        ),
        ("number = 2", "Another replica, which prefills or decodes, held {share} of the prefill of {model}"),
        ("", "Another replica held {share} of the prefill of {model}"),
    ),
    "decode": "{so_many} decode, and compute {share} of the prompt tokens that they lacked{first}",
    "transfers": "{so_many} count other transfers than their events show, {share} apart{first}",
    "refetched": "{so_many} had evicted {share} of the tokens that were transferred to them{first}",
    "capacity": (
        ("many = 1", "{subject} evicts what it fills again: {least}{share} of its prefill"),
        ("many <= 3", "{names} evict what they fill again: {least}{share} of their prefill"),
        ("", "{many} replicas of {model} evict what they fill again: {least}{share} of their prefill"),
    ),
    "restarts": "{so_many} restarted together at {at}: {share} of the prefill was filled again",
    "prefix": "Prefix {subject} of {model} is new since {at} and makes {share} of the avoidable prefill",
    "hashes": (
        ("many = 1", "{subject} hashes differently from {the_rest}"),
        ("", "{subject} and {others} more hash differently from {the_rest}"),
    ),
    "streams": (
        ("number = 3", "{so_many} announce more blocks than the engine has{first}"),
        ("number = 2", "{so_many} lost events for good{first}"),
        ("", "{so_many} ran before kvlens did, so older blocks are unknown{first}"),
    ),
}
"""What was found, by the kind of a finding."""

ACTIONS: dict[str, Cases] = {
    "routing": (
        ("number > 0", "Route {model} by prefix among the replicas that prefill"),
        ("", "Route {model} by prefix: send each request to the replica that holds most of it"),
    ),
    "decode": "Look in their logs for transfers that failed, "
    "and in the router for prompts that it sends to them alone",
    "transfers": "Take what was transferred and avoidable there as an estimate: "
    "failed and partial transfers look alike",
    "refetched": "Give {each} more KV cache, or a CPU tier: what stays need not be moved again",
    "capacity": (
        (
            "number = 0",
            "Give {each} more KV cache, or a CPU tier: how much is not known, as is usual for hybrid engines",
        ),
        (
            "",
            "Give {each} {room} more KV cache a rank{from_to}, "
            "or a CPU tier with so much more room than the GPU cache",
        ),
    ),
    "restarts": "Restart {model} in rotation, {eighth} at a time, and route by prefix: "
    "the others still hold what is shared",
    "prefix": "Send requests that begin with {subject} to one replica, or undo the change of prompt",
    "hashes": "Give all replicas of {model} the same hash algorithm and PYTHONHASHSEED, or these another "
    "hash_scheme",
    "streams": (
        ("number = 3", "Do not trust its occupancy before its next restart, or until its cache is cleared"),
        (
            "number = 2",
            "Nothing now: the next restart or cleared cache of each completes it; `kvlens doctor` says why "
            "no replay did",
        ),
        ("", "Nothing now: a restart or a cleared cache completes it"),
    ),
}
"""What to do about it."""

TEXTS: dict[str, Cases] = {
    "worth": (
        ("kind = 'transfers'", "{tokens_per_hour} tokens/h computed by one count, transferred by the other"),
        ("kind = 'refetched'", "saves transfers of about {tokens_per_hour} tokens/h, and no prefill"),
        ("kind = 'decode'", "{tokens_per_hour} tokens/h{gpus} on replicas that should only decode"),
        ("kind = 'routing' AND number = 1", "saves {bound} {tokens_per_hour} tokens/h{gpus}"),
        (
            "kind = 'routing' AND number = 2",
            "saves {bound} {tokens_per_hour} tokens/h{gpus}, less what only replicas that decode held",
        ),
        ("is_doubt", "{tokens_per_hour} tokens/h of unknown cause, at most {at_most_per_hour} in doubt"),
        ("bound = 'at most' AND at_most = tokens", "saves at most {tokens_per_hour} tokens/h{gpus}"),
        (
            "bound = 'at most'",
            "saves at most {tokens_per_hour} tokens/h{gpus}, {at_most_per_hour} with all of unknown cause",
        ),
        ("", "saves {bound} {tokens_per_hour} tokens/h{gpus}, at most {at_most_per_hour} ({at_most_share})"),
    ),
    "bound": (
        ("at_least > 0", "at least"),
        ("(kind = 'routing' AND number > 0) OR (kind = 'capacity' AND number = 0)", "at most"),
        ("", "about"),
    ),
    "whose": (
        ("kind != 'capacity'", "{model}"),
        ("many = 1", "{subject}"),
        ("", "{many} replicas of {model}"),
    ),
    "history": (
        (
            "toUnixTimestamp(arrayMax(each -> each.8, shadowed)) > 0",
            "causes at {shadowed} may be unknown until {unknown_until}, "
            "because events of {lost_at} were lost",
        ),
        (
            "",
            "causes at {shadowed} may be unknown until {unknown_until}, "
            "because not all was known until {incomplete_until}",
        ),
    ),
    "incomplete": "rests on incomplete data: {incomplete} of {behind} replicas",
    "sampled": "estimated from one block in {sampled}",
    "avoidable title": "Prefill you could avoid",
    "avoidable": (
        ("isNull(now.gpu_seconds)", "{avoidable} tokens/s, its cost is not known"),
        ("now.assumed", "{avoidable} tokens/s ≈ {avoidable_gpus} GPUs, assumed{not_found}"),
        ("", "{avoidable} tokens/s ≈ {avoidable_gpus} GPUs, measured{not_found}"),
    ),
    "hits title": "Hit rate",
    "hits unknown": "not known",
    "hits": (("now.queried = 0", "kvlens reads the metrics of no engine"), ("", "up to {ideal} possible")),
    "lever title": "Biggest lever",
    "lever name": (
        ("now.lever_kind = 'routing'", "Routing"),
        ("now.lever_kind = 'capacity'", "Cache size"),
        ("now.lever_kind = 'restarts'", "Restarts"),
        ("now.lever_kind = 'prefix'", "A new prefix"),
        ("", "none"),
    ),
    "lever": (
        ("now.lever_kind = ''", "nothing known would save a hundredth of the prefill"),
        ("now.lever_bound = 'at most'", "saves at most {lever} of the prefill of {lever_whose}"),
        ("", "saves {lever_bound} {lever} of the prefill of {lever_whose}, at most {lever_at_most}"),
    ),
    "data title": "Data",
    "data complete": "{complete} of {streams} complete",
    "data": (
        ("streams.newest.1", "newest rows {age} s old"),
        ("streams.age > 0", "no rows for at least {lasting}"),
        ("", "newest rows at most {lasting_at_most} old"),
    ),
    "change": (
        ("isNull(now) OR (isNull(before) AND place > 1)", ""),
        ("isNull(before)", "nothing to compare with before"),
        ("abs(assumeNotNull(now - before)) < 0.0005", "as in the range before"),
        ("now > before", "▲ {points} points against the range before"),
        ("", "▼ {points} points against the range before"),
    ),
}
"""The other texts of `briefing`, by name."""

_SIZED = (
    "if(bytes > 0, replaceOne(formatReadableSize({0} * bytes / number), '.00', ''), "
    "concat(toString({0}), ' tokens'))"
)
"""So many tokens, in bytes if the size of a token is known."""

# Tuples in `rated` and `shadowed` of `briefing.sql`: 1 replica, 2 tokens of prefill, 3 GPU-seconds a token,
# 4 their basis, 5 tokens it has room for, 6 unknown until, 7 incomplete until, 8 lost at.
_LEAST, _MOST = (f"array{end}(rate -> rate.5, rated)" for end in ("Min", "Max"))
"""Least and most tokens for which a rank of the finding's replicas has room; 0 if an engine does not say."""
_FROM_TO = (
    f"multiIf({_LEAST} = 0, '', {_LEAST} = {_MOST},"
    f" concat(' (from ', {_SIZED.format(_LEAST)}, ' to ', {_SIZED.format(f'({_LEAST} + number)')}, ')'),"
    f" concat(' (now ', {_SIZED.format(_LEAST)}, ' to ', {_SIZED.format(_MOST)}, ')'))"
)
_NOT_FOUND_GPUS = "(assumeNotNull(now.gpu_seconds) / now.seconds - now.gpu_seconds_found_per_hour / 3600)"
"""At least so many GPUs are without a finding: findings may count the same tokens."""
_NOT_FOUND = (
    f"if({_NOT_FOUND_GPUS} >= 0.05 * assumeNotNull(now.gpu_seconds) / now.seconds"
    f" AND {_NOT_FOUND_GPUS} >= 0.005,"
    f" concat('; at least ', toString(round({_NOT_FOUND_GPUS}, 2)), ' of them without a finding'), '')"
)
_SHADOWED_NAMES = "arrayDistinct(arrayMap(each -> each.1, shadowed))"
_SHADOWED = (
    f"if(length({_SHADOWED_NAMES}) = 1, {_SHADOWED_NAMES}[1],"
    f" concat(toString(length({_SHADOWED_NAMES})), ' replicas'))"
)

ARGUMENTS: dict[str, str] = {
    **dict.fromkeys(("model", "subject", "bound"), ""),
    **{name: f"toString({name})" for name in ("many", "behind", "incomplete", "sampled")},
    "so_many": "toString(many), ' of ', toString(behind), ' replicas of ', model",
    "share": "percent(share)",
    "at": "moment(at)",
    "names": "arrayStringConcat(replicas, ', ')",
    "others": "toString(many - 1)",
    "the_rest": "'the other replicas of ', model, ': nobody can see which prefixes they share'",
    "first": "if(many = 1, ': ', ', first '), subject",
    "each": "if(many = 1, subject, 'each of them')",
    "room": "if(bytes > 0, replaceOne(formatReadableSize(bytes), '.00', ''),"
    " concat(toString(number), ' tokens'))",
    "eighth": "toString(greatest(1, intDiv(behind, 8)))",
    "tokens_per_hour": "short(tokens_per_hour)",
    "at_most_per_hour": "short(at_most_per_hour)",
    "least": "if(number > 0, 'at least ', '')",
    "from_to": _FROM_TO,
    "at_most_share": "percent(at_most / prefill_tokens)",
    "gpus": "if(isNull(gpu_seconds_per_hour), '',"
    " concat(' (', toString(round(assumeNotNull(gpu_seconds_per_hour) / 3600, 2)), ' GPUs)'))",
    "avoidable": "short_rate(now.avoidable / now.seconds)",
    "avoidable_gpus": "toString(round(assumeNotNull(now.gpu_seconds) / now.seconds, 2))",
    "ideal": "percent(now.ideal / now.queried)",
    "not_found": _NOT_FOUND,
    "lever": "percent(now.lever_tokens / now.lever_prefill)",
    "lever_at_most": "percent(now.lever_at_most / now.lever_prefill)",
    "lever_bound": "now.lever_bound",
    "lever_whose": "now.lever_whose",
    "shadowed": _SHADOWED,
    "unknown_until": "moment(arrayMax(each -> each.6, shadowed))",
    "incomplete_until": "moment(arrayMax(each -> each.7, shadowed))",
    "lost_at": "moment(arrayMax(each -> each.8, shadowed))",
    "complete": "toString(streams.complete)",
    "streams": "toString(streams.all)",
    "age": "toString(streams.age)",
    "lasting": "lasting(streams.age)",
    "lasting_at_most": "lasting(streams.at_most)",
    "points": "toString(round(100 * abs(assumeNotNull(now - before)), 1))",
}
"""{argument: its SQL}; empty for a column of its name."""

_SAID = re.compile(r"\{say:([\w ]+)\}")
_PIECE = re.compile(r"\{(\w+)\}|([^{}]+)")


def filled_in(text: str) -> str:
    """Return a text of SQL with what it says filled in. Raises KeyError for a name that is none."""
    return _SAID.sub(lambda found: expression(found[1]), text)


def expression(name: str) -> str:
    """Return the expression of a text: `title` and `action` are those of the finding's kind."""
    if name in ("title", "action"):
        return _by_kind(TITLES if name == "title" else ACTIONS)
    return _cases(TEXTS[name])


def _by_kind(texts: Mapping[str, Cases]) -> str:
    parts = [f"kind = '{kind}', {_cases(cases)}" for kind, cases in texts.items()]
    return f"multiIf({', '.join(parts)}, '')"


def _cases(cases: Cases) -> str:
    if isinstance(cases, str):
        return _concat(cases)
    parts = [f"{condition}, {_concat(text)}" for condition, text in cases[:-1]]
    return f"multiIf({', '.join(parts)}, {_concat(cases[-1][1])})"


def _concat(text: str) -> str:
    pieces = [ARGUMENTS[name] or name if name else quoted(words) for name, words in _PIECE.findall(text)]
    return f"concat({', '.join(pieces)})" if len(pieces) > 1 else pieces[0] if pieces else "''"

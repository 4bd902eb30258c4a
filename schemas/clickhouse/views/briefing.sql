-- Rows of `answer`, then of `findings`, at half the cost: `part` is `answer` or `finding`. Of the models
-- named (of all, if none is). In `answer` `finding` is the title, `action` the detail. What each level of views below
-- another costs is a tenth of a second of planning: nothing but `answer`, `findings` and `advice` is built on this one,
-- and what only it needs stands in it. The range before is read together with the range. The last setting saves a tenth
-- of a second of planning, too: ClickHouse would look for conditions that follow from those joined by AND.
CREATE VIEW {database}.briefing AS
WITH
    toIntervalSecond(dateDiff('second', {from}, {to}) + 1) AS length,
    {finest} AS windows,
    (
        SELECT seconds
        FROM {database}.finest(from = {from} - length, to = {from} - INTERVAL 1 SECOND)
    ) AS windows_before,
    (
        SELECT seconds
        FROM {database}.finest(from = {from} - INTERVAL 1 HOUR, to = {to})
    ) AS windows_from_hour_before,
    (
        SELECT seconds FROM {database}.finest(from = {from} - length, to = {to})
    ) AS windows_of_both,
    share -> concat(toString(round(100 * assumeNotNull(share), if(assumeNotNull(share) < 0.0995, 1, 0))), ' %')
        AS percent,
    number -> concat(
        toString(multiIf(number >= 999950, round(number / 1e6, 2), number >= 999.5, round(number / 1e3, 1),
            number >= 9.95, round(number), round(number, 1))),
        multiIf(number >= 999950, 'M', number >= 999.5, 'k', '')) AS short_rate,
    (now, before, place) -> {say:change} AS changed,
    -- With what was watched for less than nine tenths of its time nothing is compared.
    (
        SELECT count() > 0
        FROM {database}.sources FINAL
        WHERE opened_at <= {from} - toIntervalSecond(intDiv(9 * (dateDiff('second', {from}, {to}) + 1), 10))
            AND (closed_at IS NULL OR closed_at >= {from} - toIntervalSecond(dateDiff('second', {from}, {to}) + 1))
            AND (empty({models:Array(String)}) OR has({models:Array(String)}, model))
    ) AS compares,
    number -> multiIf(
        number < 120, concat(toString(number), ' s'),
        number < 7200, concat(toString(intDiv(number, 60)), ' min'),
        number < 172800, concat(toString(intDiv(number, 3600)), ' h'),
        concat(toString(intDiv(number, 86400)), ' days')) AS lasting,
    -- With its date, where a day is shorter than the range and the hour before it.
    at -> formatDateTime(at, if(dateDiff('second', {from}, {to}) < 82800, '%H:%i UTC',
        '%F %H:%i UTC')) AS moment,
    number -> concat(
        toString(multiIf(number >= 999950000, round(number / 1e9, 2), number >= 999950, round(number / 1e6, 2),
            number >= 999.5, round(number / 1e3, 1), round(number))),
        multiIf(number >= 999950000, 'G', number >= 999950, 'M', number >= 999.5, 'k', '')) AS short,
    places AS
    (
        SELECT
            earlier,
            hash_domain,
            any(facts.model) AS model,
            own,
            groupArray(facts.replica) AS members,
            groupArray((
                facts.replica, facts.prefill_tokens, facts.gpu_seconds_per_token, facts.rate_basis, facts.room_tokens,
                facts.unknown_until, facts.incomplete_until, facts.lost_at
            )) AS rates,
            groupArrayIf(facts.replica, facts.hashes_alone) AS alone,
            groupArrayIf((facts.doubt, facts.unknown_tokens, facts.replica), facts.doubt > 0) AS doubtful,
            groupArrayIf(facts.replica, most > 0) AS evicting,
            sum(facts.prefill_tokens) AS prefill,
            sumIf(facts.prefill_tokens, most > 0) AS prefill_evicting,
            groupArrayIf(facts.replica, curveless) AS evicting_curveless,
            sumIf(facts.prefill_tokens, curveless) AS prefill_curveless,
            sumIf(facts.evicted_tokens, curveless) AS evicted_curveless,
            sumIf(facts.unknown_tokens, curveless) AS unknown_curveless,
            countIf(facts.trust != 'complete' AND curveless) AS incomplete_curveless,
            sum(facts.routing_tokens) AS routing_all,
            sumIf(facts.routing_tokens, facts.role != 'decode') AS routing_prefilling,
            groupArrayIf(facts.replica, facts.role != 'decode') AS prefilling,
            countIf(facts.role = 'prefill') AS prefill_alone,
            -- What such a replica holds may count as a peer's: it was not seen to receive.
            countIf(facts.role = 'decode' AND facts.claimed_tokens = 0) AS decoding_alone,
            groupArrayIf(
                (toUInt64(ifNull(facts.computed_tokens, 0)), toUInt64(ifNull(facts.transferred_tokens, 0)), facts.replica),
                -- Of what was transferred nothing is known where an engine does not count it.
                facts.role = 'decode' AND isNotNull(facts.transferred_tokens) AND ifNull(facts.computed_tokens, 0) > 0
            ) AS decoding,
            groupArrayIf(
                (toUInt64(abs(toInt64(facts.claimed_tokens) - assumeNotNull(facts.transferred_tokens))),
                    toUInt64(greatest(facts.claimed_tokens, assumeNotNull(facts.transferred_tokens))), facts.replica),
                isNotNull(facts.transferred_tokens) AND facts.sampled_one_in = 1
                    AND abs(toInt64(facts.claimed_tokens) - assumeNotNull(facts.transferred_tokens))
                        > 0.05 * greatest(facts.claimed_tokens, assumeNotNull(facts.transferred_tokens))
            ) AS apart,
            groupArrayIf(
                (toUInt64(facts.transferred_again_tokens), toUInt64(facts.claimed_tokens), facts.replica),
                facts.transferred_again_tokens > 0
            ) AS moving_again,
            sum(facts.avoidable_tokens) AS avoidable,
            sum(facts.evicted_tokens) AS all_evicted,
            sum(facts.cleared_tokens) AS cleared,
            sum(ifNull(facts.queried_tokens, 0)) AS queried,
            sum(ifNull(facts.hit_tokens, 0)) AS hit,
            sum(ifNull(facts.ideal_hit_rate * facts.queried_tokens, 0)) AS ideal,
            countIf(facts.avoidable_tokens > 0 AND isNull(facts.gpu_seconds_per_token)) AS without_rate,
            sum(ifNull(facts.avoidable_tokens * facts.gpu_seconds_per_token, 0)) AS gpu_seconds,
            countIf(facts.rate_basis = 'assumed') AS assumed,
            sum(facts.unknown_tokens) AS unknown,
            sum(facts.cold_tokens) AS cold,
            sumIf(facts.unknown_tokens, facts.hashes_alone) AS unknown_alone,
            sumIf(facts.evicted_tokens, most > 0) AS evicted,
            sumIf(facts.evicted_tokens + facts.unknown_tokens, most > 0) AS evicted_or_unknown,
            countIf(facts.trust != 'complete') AS incomplete,
            countIf(facts.trust != 'complete' AND most > 0) AS incomplete_evicting,
            max(facts.sampled_one_in) AS sampled,
            max(facts.bytes_per_token) AS bytes_per_token,
            arrayCumSum(sumForEach(facts.needed)) AS saved,
            arrayMap((tokens, place) -> tokens / saved[-1] - exp2(place - length(saved)), saved, arrayEnumerate(saved))
                AS ahead,
            indexOf(ahead, arrayMax(ahead)) AS knee
        FROM
        (
            SELECT
                * EXCEPT hash_domain,
                -- What was before is asked for by model only.
                if(earlier, model, replica_facts.hash_domain) AS hash_domain,
                arraySum(needed) AS most,
                -- How much room it takes nobody knows: what hybrid engines store is not counted by one measure.
                NOT earlier AND most = 0 AND evicted_tokens > 0 AS curveless,
                if(count() OVER (PARTITION BY earlier, replica_facts.hash_domain) > 1
                    AND 2 * most > sum(most) OVER (PARTITION BY earlier, replica_facts.hash_domain), replica, '') AS own
            FROM {database}.facts_of_both(
                before = {from} - length, {range},
                seconds = windows, seconds_before = windows_before
            ) AS replica_facts
        ) AS facts
        GROUP BY earlier, hash_domain, own
    ),
    domains AS
    (
        SELECT
            earlier,
            hash_domain,
            any(places.model) AS model,
            arraySort(groupArrayArray(places.members)) AS replicas,
            groupArrayArray(places.rates) AS rates,
            arraySort(groupArrayArray(places.alone)) AS alone,
            arrayReverseSort(groupArrayArray(places.doubtful)) AS doubtful,
            sum(places.prefill) AS prefill,
            -- Where replicas do nothing but prefill, those that decode are none that a prompt could be routed to.
            sum(places.prefill_alone) > 0 AS disaggregated,
            arraySort(groupArrayArray(places.prefilling)) AS prefilling,
            if(disaggregated, length(replicas) - length(prefilling), 0) AS decoders,
            multiIf(decoders = 0, 0, sum(places.decoding_alone) = 0, 1, 2) AS parted,
            multiIf(NOT disaggregated, sum(places.routing_all), length(prefilling) > 1, sum(places.routing_prefilling), 0)
                AS routing,
            if(disaggregated, arrayReverseSort(groupArrayArray(places.decoding)), []) AS decoding,
            arrayReverseSort(groupArrayArray(places.apart)) AS apart,
            arrayReverseSort(groupArrayArray(places.moving_again)) AS moving_again,
            sum(places.avoidable) AS avoidable,
            (
                prefill, avoidable, routing, sum(places.all_evicted), sum(places.cleared), sum(places.queried),
                sum(places.hit), sum(places.ideal), sum(places.without_rate), sum(places.gpu_seconds),
                sum(places.assumed)
            ) AS sums,
            sum(places.unknown) AS unknown,
            sum(places.cold) AS cold,
            sum(places.unknown_alone) AS unknown_alone,
            sum(places.incomplete) AS incomplete,
            max(places.sampled) AS sampled,
            groupArrayIf(
                (arraySort(evicting), least(saved[knee], evicted), evicted_or_unknown, prefill_evicting,
                    toUInt64(exp2(knee - 1)), bytes_per_token, incomplete_evicting),
                knee > 0
            ) AS curves,
            arraySort(groupArrayArray(places.evicting_curveless)) AS curveless,
            sum(places.prefill_curveless) AS prefill_curveless,
            sum(places.evicted_curveless) AS evicted_curveless,
            sum(places.unknown_curveless) AS unknown_curveless,
            sum(places.incomplete_curveless) AS incomplete_curveless
        FROM places
        GROUP BY earlier, hash_domain
    ),
    prefixes AS
    (
        SELECT
            hash_domain,
            groupArraySorted(2)((-toInt64(refilled_tokens), first_block, since, others_refilled_tokens)) AS news
        FROM {database}.new_prefixes_windows({range}, seconds = windows_of_both)
        GROUP BY hash_domain
    ),
    advice AS
    (
        SELECT
            row_number() OVER (
                ORDER BY is_sums, if(ranked_by = 'tokens', tokens_per_hour, gpu_seconds_per_hour) DESC, kind, hash_domain,
                    subject
            ) AS place,
            kind, model, hash_domain, replicas, subject, finding, action, is_sums, sums, is_doubt, seconds,
            NOT is_sums AND NOT is_doubt AND kind NOT IN ('decode', 'refetched') AS saves,
            {say:bound} AS bound,
            {say:whose} AS whose,
            {say:worth} AS figure,
            arrayStringConcat(arrayFilter(part -> part != '', [
                if(incomplete > 0, {say:incomplete}, ''),
                if(empty(shadowed), '', {say:history}),
                if(sampled > 1, {say:sampled}, '')
            ]), '; ') AS caveat,
            shadowed,
            tokens, at_least, at_most, prefill_tokens, tokens_per_hour, at_least_per_hour, at_most_per_hour,
            gpu_seconds_per_token, gpu_seconds_per_hour, rate_basis, ranked_by,
            multiIf(kind IN ('transfers', 'refetched'), 'replica', is_doubt, 'health', kind = 'capacity' AND length(replicas) = 1, 'replica',
                kind IN ('capacity', 'restarts'), 'model', 'fleet') AS board,
            concat('SELECT * FROM {database}.',
                multiIf(kind = 'restarts', 'coinciding_restarts', kind = 'prefix', 'new_prefixes', 'replica_facts'),
                '(from = ''', toString({from}), ''', to = ''', toString({to}),
                ''') WHERE hash_domain = ''', replaceAll(hash_domain, '''', ''''''), '''') AS evidence
        FROM
        (
            SELECT
                * EXCEPT (rated, share, bytes, at),
                {say:title} AS finding,
                {say:action} AS action,
                -- Complete again at the end of the range, or not: what was filled since may be of unknown cause.
                arrayFilter(rate -> rate.6 > {to}, rated) AS shadowed,
                multiIf(
                    -- To move what is there takes no prefill.
                    kind = 'refetched', toFloat64(0),
                    empty(rated) OR arrayExists(rate -> isNull(rate.3), rated), NULL,
                    arraySum(rate -> rate.2 * assumeNotNull(rate.3), rated) / nullIf(arraySum(rate -> rate.2, rated), 0)
                ) AS gpu_seconds_per_token,
                tokens_per_hour * gpu_seconds_per_token AS gpu_seconds_per_hour,
                multiIf(isNull(gpu_seconds_per_token), 'unknown', arrayExists(rate -> rate.4 = 'assumed', rated), 'assumed',
                    'measured') AS rate_basis,
                if(countIf(isNull(gpu_seconds_per_token) AND NOT is_sums) OVER () > 0, 'tokens', 'gpu_seconds') AS ranked_by
            FROM
            (
                SELECT
                    model, hash_domain, sums, sampled, seconds,
                    one.1 AS kind, one.2 AS replicas, one.3 AS subject, one.4 AS tokens, one.5 AS at_least, one.6 AS at_most,
                    one.7 AS prefill_tokens, one.8 AS incomplete, one.9 AS behind, one.10 AS share, one.11 AS number,
                    one.12 AS bytes, one.13 AS at, length(one.2) AS many,
                    kind IN ('sums', 'past') AS is_sums,
                    kind IN ('hashes', 'streams', 'transfers') AS is_doubt,
                    tokens / seconds * 3600 AS tokens_per_hour,
                    at_least / seconds * 3600 AS at_least_per_hour,
                    at_most / seconds * 3600 AS at_most_per_hour,
                    arrayFilter(rate -> empty(replicas) OR has(replicas, rate.1), rates) AS rated
                FROM
                (
                    SELECT
                        domains.hash_domain AS hash_domain,
                        domains.earlier AS earlier,
                        domains.model AS model,
                        domains.rates AS rates,
                        domains.sampled AS sampled,
                        domains.sums AS sums,
                        length(domains.replicas) AS size,
                        if(earlier, [(
                            'past', [] :: Array(String), '', toUInt64(0), toUInt64(0), toUInt64(0), prefill, toUInt64(0),
                            size, toFloat64(0), toUInt64(0), toFloat64(0), toDateTime(0, 'UTC')
                        )], arrayConcat(
                            [(
                                'sums', [] :: Array(String), '', toUInt64(0), toUInt64(0), toUInt64(0), prefill, toUInt64(0), size,
                                toFloat64(0), toUInt64(0), toFloat64(0), toDateTime(0, 'UTC')
                            ), (
                                'routing', if(decoders > 0, domains.prefilling, domains.replicas), '', routing, toUInt64(0),
                                if(decoders > 0, routing, avoidable + unknown), prefill, incomplete, size, routing / prefill,
                                toUInt64(parted), toFloat64(0), toDateTime(0, 'UTC')
                            )],
                            if(
                                empty(decoding), [],
                                [(
                                    'decode', arrayMap(each -> each.3, decoding), decoding[1].3,
                                    arraySum(each -> each.1, decoding), toUInt64(0), arraySum(each -> each.1, decoding),
                                    prefill, toUInt64(0), size,
                                    arraySum(each -> each.1, decoding) / arraySum(each -> each.1 + each.2, decoding),
                                    toUInt64(0), toFloat64(0), toDateTime(0, 'UTC')
                                )]),
                            if(
                                empty(moving_again), [],
                                [(
                                    'refetched', arrayMap(each -> each.3, moving_again), moving_again[1].3,
                                    arraySum(each -> each.1, moving_again), toUInt64(0),
                                    arraySum(each -> each.1, moving_again), prefill, toUInt64(0), size,
                                    arraySum(each -> each.1, moving_again) / arraySum(each -> each.2, moving_again),
                                    toUInt64(0), toFloat64(0), toDateTime(0, 'UTC')
                                )]),
                            if(
                                arraySum(each -> each.1, apart) <= 0.01 * prefill, [],
                                [(
                                    'transfers', arrayMap(each -> each.3, apart), apart[1].3,
                                    arraySum(each -> each.1, apart), toUInt64(0), arraySum(each -> each.1, apart), prefill,
                                    toUInt64(0), size,
                                    arraySum(each -> each.1, apart) / arraySum(each -> each.2, apart),
                                    toUInt64(0), toFloat64(0), toDateTime(0, 'UTC')
                                )]),
                            arrayMap(
                                curve -> (
                                    'capacity', curve.1, if(length(curve.1) = 1, curve.1[1], ''), curve.2, curve.2, curve.3,
                                    curve.4, curve.7, length(curve.1), curve.2 / curve.4, curve.5, curve.5 * curve.6,
                                    toDateTime(0, 'UTC')
                                ),
                                curves),
                            if(
                                empty(curveless), [],
                                [(
                                    'capacity', curveless, if(length(curveless) = 1, curveless[1], ''),
                                    evicted_curveless, toUInt64(0), evicted_curveless + unknown_curveless,
                                    prefill_curveless, incomplete_curveless, length(curveless),
                                    evicted_curveless / prefill_curveless, toUInt64(0), toFloat64(0),
                                    toDateTime(0, 'UTC')
                                )]),
                            if(
                                length(restarts.restarted) <= greatest(1, intDiv(size, 8)), [],
                                [(
                                    'restarts', restarts.restarted, '', least(restarts.spared, avoidable), toUInt64(0),
                                    least(restarts.cleared, avoidable), prefill, incomplete, size,
                                    least(restarts.cleared, avoidable) / prefill, toUInt64(0), toFloat64(0), restarts.begun
                                )]),
                            arrayMap(
                                new -> (
                                    'prefix', [] :: Array(String), new.2, least(toUInt64(-new.1), avoidable), toUInt64(0),
                                    toUInt64(greatest(-new.1, toInt64(avoidable) - toInt64(new.4))), prefill, incomplete, size,
                                    least(-new.1, toInt64(avoidable)) / avoidable, toUInt64(0), toFloat64(0), new.3
                                ),
                                arrayFilter(new -> -new.1 >= 0.1 * avoidable, prefixes.news)),
                            if(
                                empty(alone), [],
                                [(
                                    'hashes', alone, alone[1], unknown_alone, toUInt64(0), unknown + cold, prefill,
                                    toUInt64(0), length(alone), toFloat64(0), toUInt64(0), toFloat64(0), toDateTime(0, 'UTC')
                                )]),
                            arrayMap(
                                alike -> (
                                    'streams', arrayMap(each -> each.3, alike), alike[1].3,
                                    toUInt64(arraySum(each -> each.2, alike)), toUInt64(0), unknown + cold, prefill,
                                    length(alike), size, toFloat64(0), toUInt64(alike[1].1), toFloat64(0),
                                    toDateTime(0, 'UTC')
                                ),
                                arrayFilter(alike -> notEmpty(alike), arrayMap(
                                    doubt -> arrayFilter(each -> each.1 = doubt, doubtful), [3, 2, 1])))
                        )) AS found
                    FROM domains
                    LEFT JOIN {database}.coinciding_restarts_windows({range}, seconds = windows, seconds_from_hour_before = windows_from_hour_before) AS restarts
                        ON restarts.hash_domain = domains.hash_domain
                    LEFT JOIN prefixes ON prefixes.hash_domain = domains.hash_domain
                )
                ARRAY JOIN found AS one
                CROSS JOIN {database}.observed_windows(
                    {range}, length = windows) AS watched
                -- Counters and events of a moment need not be of the same requests.
                WHERE is_sums OR (is_doubt AND (kind != 'transfers' OR seconds >= 300))
                    OR (NOT is_doubt AND tokens > 0 AND tokens >= 0.01 * prefill_tokens)
            )
        )
    )
SELECT
    line.1 AS part,
    line.2 AS place,
    line.3 AS title,
    line.4 AS figure,
    line.5 AS detail,
    line.6 AS change,
    line.7 AS value,
    line.8 AS before,
    line.9.2 AS caveat,
    line.9.3 AS kind,
    line.9.4 AS model,
    line.9.5 AS hash_domain,
    line.9.6 AS replicas,
    line.9.7 AS subject,
    line.9.8 AS tokens_per_hour,
    line.9.9 AS at_least_per_hour,
    line.9.10 AS at_most_per_hour,
    line.9.11 AS gpu_seconds_per_hour,
    line.9.12 AS rate_basis,
    line.9.13 AS ranked_by,
    line.9.14 AS board,
    line.9.15 AS evidence,
    line.9.19 AS tokens,
    line.9.20 AS at_least,
    line.9.21 AS at_most,
    line.9.22 AS prefill_tokens,
    line.9.23 AS gpu_seconds_per_token,
    line.9.24 AS is_doubt
FROM
(
    SELECT
        [
            (
                toUInt32(1), {say:avoidable title}, if(now.prefill = 0, '', percent(now.avoidable / now.prefill)), {say:avoidable},
                toNullable(now.avoidable / nullIf(now.prefill, 0)),
                if(compares, now.avoidable_past / nullIf(now.prefill_past, 0), NULL)
            ),
            (
                toUInt32(2), {say:hits title},
                multiIf(now.prefill = 0, '', now.queried = 0, {say:hits unknown}, percent(now.hit / now.queried)), {say:hits},
                toNullable(now.hit / nullIf(now.queried, 0)),
                if(compares, now.hit_past / nullIf(now.queried_past, 0), NULL)
            ),
            (
                toUInt32(3), {say:lever title}, if(now.prefill = 0, '', {say:lever name}), {say:lever},
                multiIf(now.lever_kind = 'routing', now.routing, now.lever_kind = 'capacity', now.evicted,
                    now.lever_kind = 'restarts', now.cleared, NULL) / nullIf(now.prefill, 0),
                multiIf(NOT compares, NULL, now.lever_kind = 'routing', now.routing_past,
                    now.lever_kind = 'capacity', now.evicted_past, now.lever_kind = 'restarts', now.cleared_past, NULL)
                    / nullIf(now.prefill_past, 0)
            ),
            (
                toUInt32(4), {say:data title}, if(streams.all = 0, '', {say:data complete}),
                concat({say:data}, if(empty(shadowed), '', concat('; ', {say:history}))),
                toNullable(streams.complete / nullIf(streams.all, 0)),
                if(compares, streams.complete_past / nullIf(streams.all_past, 0), NULL)
            )
        ] AS answers,
        arrayConcat(
            arrayMap(
                one -> (
                    'answer', one.1, one.2, one.3, one.4, changed(one.5, one.6, one.1), one.5, one.6,
                    now.found[length(now.found) + 1]  -- beyond the end: all empty
                ),
                arrayFilter(one -> one.3 != '', answers)
            ),
            arrayMap(
                (one, place) -> (
                    'finding', toUInt32(place), one.16, one.17, one.18, '', CAST(NULL, 'Nullable(Float64)'),
                    CAST(NULL, 'Nullable(Float64)'), one
                ),
                now.found, arrayEnumerate(now.found)
            )
        ) AS lines
    FROM
    (
        SELECT
            max(seconds) AS seconds,
            sumIf(sums.1, kind = 'sums') AS prefill,
            sumIf(sums.2, kind = 'sums') AS avoidable,
            sumIf(sums.3, kind = 'sums') AS routing,
            sumIf(sums.4, kind = 'sums') AS evicted,
            sumIf(sums.5, kind = 'sums') AS cleared,
            sumIf(sums.6, kind = 'sums') AS queried,
            sumIf(sums.7, kind = 'sums') AS hit,
            sumIf(sums.8, kind = 'sums') AS ideal,
            if(sumIf(sums.9, kind = 'sums') > 0, NULL, sumIf(sums.10, kind = 'sums')) AS gpu_seconds,
            sumIf(sums.11, kind = 'sums') > 0 AS assumed,
            sumIf(sums.1, kind = 'past') AS prefill_past,
            sumIf(sums.2, kind = 'past') AS avoidable_past,
            sumIf(sums.3, kind = 'past') AS routing_past,
            sumIf(sums.4, kind = 'past') AS evicted_past,
            sumIf(sums.5, kind = 'past') AS cleared_past,
            sumIf(sums.6, kind = 'past') AS queried_past,
            sumIf(sums.7, kind = 'past') AS hit_past,
            sumIf(ifNull(gpu_seconds_per_hour, 0), saves) AS gpu_seconds_found_per_hour,
            groupArrayArrayIf(advice.shadowed, kind = 'sums') AS shadowed,
            argMinIf((kind, tokens, prefill_tokens, at_most, bound, whose), place, saves) AS lever_finding,
            lever_finding.1 AS lever_kind,
            lever_finding.2 AS lever_tokens,
            lever_finding.3 AS lever_prefill,
            lever_finding.4 AS lever_at_most,
            lever_finding.5 AS lever_bound,
            lever_finding.6 AS lever_whose,
            arraySort(groupArrayIf(
                (
                    place, caveat, kind, model, hash_domain, replicas, subject, tokens_per_hour, at_least_per_hour,
                    at_most_per_hour, gpu_seconds_per_hour, rate_basis, ranked_by, board, evidence, finding,
                    advice.figure, action, tokens, at_least, at_most, prefill_tokens, gpu_seconds_per_token, is_doubt
                ),
                NOT is_sums
            )) AS found
        FROM advice
        WHERE empty({models:Array(String)}) OR has({models:Array(String)}, model)
    ) AS now
    CROSS JOIN
    (
        SELECT
            maxIf((exact, end, window), NOT earlier) AS newest,
            arrayFilter(
                one -> one.1 = newest.1 AND one.2 >= newest.2 - INTERVAL 30 MINUTE,
                groupArrayIf((exact, end, trust), NOT earlier)
            ) AS lately,
            length(lately) AS all,
            arrayCount(one -> one.3 = 'complete', lately) AS complete,
            greatest(0, dateDiff('second', newest.2, {to})) AS age,
            dateDiff('second', newest.3, {to}) AS at_most,
            countIf(earlier) AS all_past,
            countIf(earlier AND trust = 'complete') AS complete_past
        FROM {database}.latest_of_both(
            before = {from} - length, {range},
            seconds = windows, seconds_before = windows_before
        )
        WHERE empty({models:Array(String)}) OR has({models:Array(String)}, model)
    ) AS streams
)
ARRAY JOIN lines AS line
ORDER BY part, place
SETTINGS join_use_nulls = 0, optimize_and_compare_chain = 0

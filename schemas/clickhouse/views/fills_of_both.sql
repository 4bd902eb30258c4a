-- Fills of a range and, `earlier`, of the one before it, which begins at `before`: of each replica those of the group
-- that filled most, as in hit_potential_windows. Both are read at once: often they lie in the same hours.
CREATE VIEW {database}.fills_of_both AS
WITH
    {before:DateTime('UTC')} AS past_since,
    {from} AS now_since,
    {to} AS now_until,
    {seconds:UInt32} AS now_seconds,
    {seconds_before:UInt32} AS past_seconds
SELECT
    earlier, hash_domain, model, replica, group_idx,
    max(until) AS last,
    length(groupUniqArrayArray(filling)) AS ranks,
    sum(filled) AS filled,
    sum(prefill) AS prefill,
    sum(transferred) AS transferred,
    sum(again) AS again,
    sum(peer) AS peer,
    sum(routable_peer) AS routable_peer,
    sum(peer_and_evicted) AS peer_and_evicted,
    sum(evicted) AS evicted,
    sum(evicted_elsewhere) AS evicted_elsewhere,
    sum(cleared) AS cleared,
    sum(cold) AS cold,
    sum(unknown) AS unknown,
    max(one_in) AS one_in,
    max(worst) AS worst
FROM
(
    SELECT
        hash_domain, model, replica, group_idx, ranges,
        max(window) AS until,
        groupUniqArray(dp_rank) AS filling,
        sum(filled_tokens) AS filled,
        sum(prefill_tokens) AS prefill,
        sum(transferred_tokens) AS transferred,
        sum(transferred_again_tokens) AS again,
        sum(peer_tokens) AS peer,
        sum(peer_tokens - peer_at_receivers_tokens) AS routable_peer,
        sum(peer_and_evicted_tokens) AS peer_and_evicted,
        sum(evicted_tokens) AS evicted,
        sum(evicted_elsewhere_tokens) AS evicted_elsewhere,
        sum(cleared_tokens) AS cleared,
        sum(cold_tokens) AS cold,
        sum(unknown_tokens) AS unknown,
        max(sampled_one_in) AS one_in,
        max(trust) AS worst
    FROM
    (
        -- for 10s, 1m, 1h
        SELECT
            window, hash_domain, model, replica, dp_rank, group_idx, filled_tokens,
            toUInt64(filled_tokens - promoted_tokens - transferred_tokens - generated_tokens) AS prefill_tokens,
            transferred_tokens, transferred_again_tokens, peer_tokens, peer_at_receivers_tokens, peer_and_evicted_tokens,
            evicted_tokens, evicted_elsewhere_tokens, cleared_tokens, cold_tokens, unknown_tokens, sampled_one_in, trust,
            (now_seconds = {length} AND window >= {start}(now_since))
                + 2 * (past_seconds = {length} AND window < now_since) AS ranges
        FROM {database}.fills_{grain} FINAL
        WHERE (now_seconds = {length} OR past_seconds = {length})
            AND window >= {start}(if(past_seconds = {length}, past_since, now_since))
            AND window <= if(now_seconds = {length}, now_until, now_since - INTERVAL 1 SECOND)
            AND {slice}(window) >= {slice}(if(past_seconds = {length}, past_since, now_since))
            AND {slice}(window) <= if(now_seconds = {length}, now_until, now_since - INTERVAL 1 SECOND)
        -- end
    )
    GROUP BY hash_domain, model, replica, group_idx, ranges
)
ARRAY JOIN arrayFilter(one -> bitTest(ranges, one), [0, 1]) AS earlier
GROUP BY earlier, hash_domain, model, replica, group_idx
ORDER BY filled DESC, group_idx
LIMIT 1 BY earlier, hash_domain, model, replica

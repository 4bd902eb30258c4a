-- Sources with what is known of their hashes: one shard's match is proof.
CREATE VIEW {database}.source_hashes AS
SELECT
    s.model AS model,
    s.replica AS replica,
    s.dp_rank AS dp_rank,
    s.incarnation AS incarnation,
    s.hash_domain AS hash_domain,
    s.closed_at AS closed_at,
    h.alike AS alike,
    h.hash_groups AS hash_groups,
    h.doubtful_shards AS doubtful_shards,
    multiIf(h.alike > 0, 'alike', h.doubtful_shards > 0, 'alone', 'not known') AS hashes
FROM
(
    SELECT model, replica, dp_rank, incarnation, hash_domain, closed_at
    FROM {database}.sources FINAL
    ORDER BY incarnation DESC
    LIMIT 1 BY model, replica, dp_rank
) AS s
LEFT JOIN
(
    SELECT
        hash_domain,
        replica,
        dp_rank,
        incarnation,
        max(alike) AS alike,
        groupUniqArray(hash_group) AS hash_groups,
        countIf(alone) AS doubtful_shards
    FROM {database}.hash_groups FINAL
    GROUP BY hash_domain, replica, dp_rank, incarnation
) AS h USING (hash_domain, replica, dp_rank, incarnation)

-- Tenants and replicas that lived in a range, with their ranks.
CREATE VIEW {database}.prefill_replicas AS
SELECT tenant, hash_domain, model, replica, ranks, latest
FROM
(
    SELECT
        tenant,
        hash_domain,
        model,
        replica,
        groupUniqArrayArray(groupUniqArray(dp_rank)) OVER (PARTITION BY model, replica) AS of_replica,
        length(of_replica) AS ranks,
        row_number() OVER (PARTITION BY model, replica ORDER BY max(opened_at) DESC, hash_domain) = 1 AS latest
    FROM {database}.sources FINAL
    WHERE (closed_at IS NULL OR closed_at >= {from})
        AND opened_at <= {to}
    GROUP BY tenant, hash_domain, model, replica
)

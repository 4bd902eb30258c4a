-- Of whole media: bytes against the capacity declared, uses, hits and the share of hits among objects read or stored.
-- Hits are NULL where accesses are not one request each (docs/figures.md), and where there
-- were none; so add up hits and stored objects of a range before you divide. Groups hold different tensors of the same
-- tokens, so tokens are those of the group with most.
CREATE VIEW {database}.object_use AS
SELECT
    window,
    model,
    replica,
    dp_rank,
    medium,
    sum(one.objects) AS objects,
    sum(one.bytes) AS bytes,
    max(one.capacity_bytes) AS capacity_bytes,
    sum(one.stored_objects) AS stored_objects,
    sum(one.stored_bytes) AS stored_bytes,
    sum(one.accesses) AS accesses,
    max(one.accessed_tokens) AS accessed_tokens,
    sum(one.accessed_bytes) AS accessed_bytes,
    if(accesses > 0 AND sum(one.hits) = accesses, toNullable(accesses), NULL) AS hits,
    if(isNull(hits), NULL, toNullable(max(one.hit_tokens))) AS hit_tokens,
    if(isNull(hits), NULL, toNullable(sum(one.hit_bytes))) AS hit_bytes,
    hits / nullIf(hits + stored_objects, 0) AS hit_rate,
    sum(one.first_accesses) AS first_accesses,
    sum(one.unknown_accesses) AS unknown_accesses,
    sum(one.unlisted_objects) AS unlisted_objects,
    max(one.trust) AS trust
FROM {database}.objects({range}) AS one
GROUP BY window, model, replica, dp_rank, medium

-- held_series of windows of `seconds`.
CREATE VIEW {database}.held_windows AS
SELECT
    window,
    width,
    time,
    model,
    replica,
    dp_rank,
    medium,
    sum(of_group.entries) AS entries,
    sum(of_group.blocks) AS blocks,
    sum(of_group.smaller_blocks) AS smaller_blocks,
    max(of_group.capacity_blocks) AS capacity_blocks,
    max(of_group.capacity_blocks * of_group.block_size) AS capacity_tokens,
    max(of_group.tokens) AS most_tokens,
    if(
        max(of_group.untold), NULL,
        if(capacity_tokens > 0, least(most_tokens, capacity_tokens), most_tokens)
    ) AS tokens,
    toBool(max(of_group.is_bound) OR (capacity_tokens > 0 AND most_tokens > capacity_tokens)) AS is_bound,
    toBool(max(of_group.store_only)) AS store_only,
    toBool(max(of_group.at_least)) AS at_least,
    toBool(max(of_group.tokens_at_least)) AS tokens_at_least,
    max(of_group.trust) AS trust
FROM
(
    SELECT
        window,
        width,
        time,
        model,
        replica,
        dp_rank,
        medium,
        group_idx,
        max(part.block_size) AS block_size,
        argMax(part.entries, part.block_size) AS entries,
        argMax(part.blocks, part.block_size) AS blocks,
        argMax(part.capacity_blocks, part.block_size) AS capacity_blocks,
        arraySum(one -> if(one.1 < block_size, one.2, 0), groupArray((part.block_size, part.blocks))) AS smaller_blocks,
        sumIf(part.blocks, part.block_size = 0 AND part.tokens = 0) AS blocks_of_no_size,
        max(if(medium = 'gpu', block_size, 0)) OVER of_rank AS gpu_block_size,
        sum(part.tokens) + blocks_of_no_size * gpu_block_size AS tokens,
        (blocks_of_no_size > 0 AND gpu_block_size = 0) AS untold,
        (max(part.store_only) OR smaller_blocks > 0) AS is_bound,
        max(part.store_only) AS store_only,
        max(part.at_least) AS at_least,
        (at_least OR blocks_of_no_size > 0) AS tokens_at_least,
        max(part.trust) AS trust
    FROM {database}.occupancy_windows({range}, step = {step:UInt32}, seconds = {seconds:UInt32}) AS part
    GROUP BY window, width, time, model, replica, dp_rank, medium, group_idx
    WINDOW of_rank AS (PARTITION BY window, model, replica, dp_rank, group_idx)
) AS of_group
GROUP BY window, width, time, model, replica, dp_rank, medium;

-- What each rank holds on each medium at the end of a window, in rows of ten seconds. `entries` and `blocks` are those of
-- the largest block size of each KV-cache group, which fill the engine's `capacity_blocks`; `smaller_blocks` lie in these.
-- `tokens` are those of the group that holds most, as the others hold the same ones again, but no more than there is
-- room for (`capacity_tokens`). A block of an offload tier whose size the engine does not tell holds at least as many as
-- one of the same group on the GPU (`tokens_at_least`); NULL where none is there. `is_bound`: there may be fewer,
-- because a tier or a hybrid engine does not say what leaves, or because more were counted than there is room for.
CREATE VIEW {database}.held AS
SELECT * EXCEPT (width, time, most_tokens)
FROM {database}.held_windows({range}, step = 10, seconds = 10);

-- As without `_series`, from the table that fits the range.
CREATE VIEW {database}.held_series AS
SELECT *
FROM {database}.held_windows({range}, step = {step:UInt32}, seconds = {finest});

-- replica_facts of windows of `seconds`: those of facts_of_both with nothing before.
CREATE VIEW {database}.replica_facts_windows AS
SELECT * EXCEPT earlier
FROM {database}.facts_of_both(
    before = {from}, {range},
    seconds = {seconds:UInt32}, seconds_before = toUInt32(0)
);

-- Per replica, all that findings rest on: its prefill and why; `needed`, the tokens filled again for which 2**k more
-- tokens of cache suffice; what a token of prefill takes; whether its hashes compare; and `doubt` about its streams at
-- the end of the range: 0 complete, 1 partial, 2 events are missing, 3 more blocks than the engine has.
CREATE VIEW {database}.replica_facts AS
SELECT *
FROM {database}.replica_facts_windows({range}, seconds = {finest});

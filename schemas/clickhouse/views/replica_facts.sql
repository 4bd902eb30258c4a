-- Per replica, all that findings rest on: what it filled and why; `needed`, the tokens filled again for which 2**k more
-- tokens of cache suffice; what a token of prefill takes; whether its hashes compare; and `doubt` about its streams at
-- the end of the range: 0 complete, 1 partial, 2 events are missing, 3 more blocks than the engine has.
CREATE VIEW {database}.replica_facts AS
SELECT *
FROM {database}.replica_facts_windows(
    from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')},
    seconds = (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}))
)

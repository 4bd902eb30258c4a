-- replica_facts of windows of `seconds`: those of facts_of_both with nothing before.
CREATE VIEW {database}.replica_facts_windows AS
SELECT * EXCEPT earlier
FROM {database}.facts_of_both(
    before = {from:DateTime('UTC')}, from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')},
    seconds = {seconds:UInt32}, seconds_before = toUInt32(0)
)

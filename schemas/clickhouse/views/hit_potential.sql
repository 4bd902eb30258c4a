-- Per replica: prefill work done, what of it had been done before and who could have saved it, and the hit rates
-- behind it. Where an engine keeps several KV-cache groups, those of the group that filled most tokens (of equal ones
-- the first): the others hold the same tokens once more. Where a replica had several hash domains in the range, its
-- hit rates stand at the last one.
CREATE VIEW {database}.hit_potential AS
SELECT *
FROM {database}.hit_potential_windows(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}, seconds = 10)

-- Per replica: with so much more cache on each of its ranks, at least so much of the fills would have been hits.
-- Bytes are 0 where the settings do not say `kv_bytes_per_token` of the model. The group as in hit_potential.
CREATE VIEW {database}.capacity_gain AS
SELECT *
FROM {database}.capacity_gain_windows(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}, seconds = 10)

-- All findings, by GPU-seconds an hour, or by tokens an hour where the rate of any is unknown (`ranked_by`). `tokens`
-- is the figure of the range, `at_least` and `at_most` are its bounds. What is less than a hundredth of the prefill is
-- no finding, unless it says that figures are doubtful. A finding may count what another one counts, too: either remedy
-- saves it. The rate of a finding is the mean of its replicas', weighted by their prefill.
CREATE VIEW {database}.findings AS
SELECT
    place, kind, model, hash_domain, replicas, subject, title AS finding, detail AS action,
    is_doubt, figure, caveat, tokens, at_least, at_most, prefill_tokens,
    tokens_per_hour, at_least_per_hour, at_most_per_hour, gpu_seconds_per_token, gpu_seconds_per_hour, rate_basis,
    ranked_by, board, evidence
FROM {database}.briefing(
    {range}, models = CAST([], 'Array(String)'))
WHERE part = 'finding'
ORDER BY place

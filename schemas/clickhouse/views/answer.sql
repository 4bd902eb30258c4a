-- The answer in four lines, of the models named (if none, of all): what was avoidable, the hit rate, what saves most,
-- how complete and old the data are; each with its change against the range of equal length before. What saves
-- most is the first finding that saves anything. `value` and `before` are shares, 0 to 1: of the prefill that was
-- avoidable, of the lookups that hit, of the prefill that has the cause which the lever removes, of the streams that
-- were complete.
CREATE VIEW {database}.answer AS
SELECT place, title, figure, detail, change, value, before
FROM {database}.briefing(
    {range}, models = {models:Array(String)})
WHERE part = 'answer'
ORDER BY place

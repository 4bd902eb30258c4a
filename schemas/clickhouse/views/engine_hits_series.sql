-- Growth of the engines' counters from one scrape to the next one read, of the first one from the start of its
-- period; a counter that fell began again at 0.
CREATE VIEW {database}.engine_hits_series AS
SELECT *
FROM {database}.engine_hits_windows(
    from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')},
    seconds = (SELECT seconds FROM {database}.finest(from = {from:DateTime('UTC')}, to = {to:DateTime('UTC')}))
)

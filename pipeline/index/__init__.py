"""Which replicas hold given blocks: an index built from the events log, and its answers over HTTP.

`service` runs it. `following` applies the log, with the counting of `pipeline.residency`, to the table in
`holdings`, which `index` asks for `server`; `choices` judges and writes what routers chose.
"""

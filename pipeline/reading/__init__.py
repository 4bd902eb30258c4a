"""Records of the events topic, from bytes to columns: compiled code reads what almost all of them consist of.

`records.read` reads the values of many records at once, but only what is certain: a run of stores and
removals that the schema allows, batch after batch, with plausible clocks. Any other record is left to the
ordinary decoder: one with notices, clears, bytes or uses of objects, replayed batches, gaps or fields not
known, and one that needs more rows than the tables of what is read together have (`scan.TABLE_ROWS`).

Runs of a source that continue each other are joined, so that the interpreter works once for all of them. A
long record in which few batches are something else (mostly a clear) is read in parts: runs, and those batches
decoded. `SourceResidency.apply_run` decides whether a source applies a run as a whole.
"""

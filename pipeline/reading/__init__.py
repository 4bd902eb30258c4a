"""Records of the events topic, from bytes to columns: compiled code reads what almost all of them consist of.

`records.read` reads the values of many records at once. It reads what is certain, and no more: a run of
stores and removals that the schema allows, batch after batch, with clocks to be believed. Of anything else it
says nothing, and the record is decoded as ever. Runs of a source that go on with each other are joined: what
the interpreter does, it does once for all of them. A long record in which few batches are something else
(mostly a clear) is read in parts: runs, and those batches decoded. `SourceResidency.apply_run` decides
whether a source takes such a run as a whole.
"""

"""The batches of one source in the order of their numbers: gaps, restarts, backlog, runs. No IO.

`stream` is the entrance of one source. What is due goes into `log` at once; otherwise `recovery` asks the
engine's replay (`asks`, `pacing`) while messages wait in `backlog`, and gives up in the end. `runs` makes
records of what the log took. For many sources at once, `together` and `gathering` are the way of batches that
are simply the next.
"""

"""Recounts every table from the log, in plain code, and compares the result with ClickHouse.

`against_log` runs all comparisons: of events with the rows of replicas (`replica`) and with the residency
topic (`fleet.topic_check`), of residency with the fleet's rows (`fleet`), and of figures, choices, minutes
and hours (`rollups`) and costs (`money`). `findings` collects what differs, and what was not compared and
why.

Nothing is shared with the agents, so constants that both must agree on, such as `HEARD_LATELY`, stand here
again: who changes one there changes it here.
"""

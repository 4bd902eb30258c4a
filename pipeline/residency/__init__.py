"""What is resident where: pure state of the replica agent, from normalised events to rows.

`partition` is the entrance: it gives each record to its `source`. A source applies events to `pools` (one
pool is a medium and a group, counted by `counting`), keeps what else a stream shows (`stream`: trust, drift,
connections), and closes windows (`source_windows`). A cut of the partition takes rows, changes of residency
(`sharding`) and bases (`checkpoint`) of all sources.
"""

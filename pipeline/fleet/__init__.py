"""The fleet agent's pure part: who holds what, who lost what, and why blocks are filled.

`state` is the entrance. The changes of a record become `pieces`, wait in `waiting` until event time
(`event_time`) is past them, and are counted by the compiled `kernel`: `follow` goes through them,
`fill_cause` decides. Windows are open in `open_windows`, `transfers` decides what receivers computed, and
bases are in `snapshot`.
"""

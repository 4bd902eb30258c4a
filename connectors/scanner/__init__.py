"""Transcode well-formed payloads into encoded batches of our records, in one pass of compiled code.

What a payload means is defined by `connectors.careful`; this does the same for what engines really send, and
gives a payload up (leaves it to careful) on anything else, however small the doubt. Where it does not, the
bytes it writes decode to exactly what careful returns.

Payloads are hostile. Compiled code checks no bounds by itself, so every function here keeps to this: `p` is
where it reads, `end` is the end of the payload, a byte is read only after `end - p` said that it is there,
and a negative position means "give up". Values are skipped with a counter and a stack of bounded depth,
never by recursion. Before anything is written, the room for it up to `limit` was checked.

From the outside in: `payloads`, `batches`, `events`, `stored`, `fields` and `places`, `hashes`, `reading`
and `writing`.
"""

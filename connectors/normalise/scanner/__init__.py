"""Transcode well-formed payloads into encoded batches of our records, in one pass of compiled code.

What a payload means is defined by `connectors.normalise.reference_decoder`. This does the same for what
engines really send, and gives a payload up (leaves it to the reference decoder) on anything else, however
small the doubt. Where it does not, the bytes it writes decode to exactly what the reference decoder returns.

Payloads are hostile. Compiled code checks no bounds by itself, so every function here keeps to this: `p` is
where it reads, `end` is the end of the payload, a byte is read only after `end - p` said that it is there,
and a negative position means "give up". Values are skipped with a counter and a stack of bounded depth,
never by recursion. Before anything is written, the room for it up to `limit` was checked.

From the outside in: `payloads`, `batches`, `events`, `forms`, `stored` and `location`, `hashes`, `reading`
and `writing`. What the engines' events look like it gets as bytes, from `connectors.normalise.scan_tables`.
"""

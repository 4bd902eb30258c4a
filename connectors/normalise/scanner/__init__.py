"""Transcode well-formed payloads into encoded batches of our records, in one pass of compiled code.

What a payload means is defined by `connectors.normalise.reference_decoder`. The scanner does the same for
what engines really send, and gives a payload up (leaves it to the reference decoder) on anything else,
however small the doubt. Otherwise what it writes decodes to exactly what the reference decoder returns.

Payloads may be hostile. Compiled code checks no bounds by itself, so every function here keeps to this: `p`
is where it reads, `end` is the end of the payload, `o` is where it writes in `out`; a byte is read only after
`end - p` showed that it is there, and written only after the room up to `limit` was checked. A negative
position means "give up". Values are skipped with a counter and a stack of bounded depth, never by recursion.

From the outside in: `payloads`, `batches`, `events`, `forms`, `stored` and `location`, `hashes`, `links` and
`names`, `writing`. The shapes of the engines' events come as bytes, from `connectors.normalise.scan_tables`.
"""

"""An engine's payload in, a normalised batch out.

`reference_decoder` defines what a payload means, event by event. `scan` is the fast way, by the compiled
`scanner`, for what arrives in quantity; `normaliser` chooses. Neither lets token ids, text or salts through.
"""

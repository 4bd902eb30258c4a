"""Block hashes from token ids, as the engines compute them: what a router asks the index with.

`content` are hashes of our own, which compare across engines. Needs nothing but msgspec and the standard
library (vLLM's xxhash algorithms: the package xxhash). Token ids stay in the caller's process.
"""

"""The compiled loop over changes of residency, and the flat tables it works on.

Changes come in pieces: those of one source and pool (medium and group) in a record. A space is a hash domain,
model and group; a lineage, a space with a LoRA or without one. A cell is the open window of a source in a
space; a gauge, the redundancy of a space on a medium. A root is the first block of a chain.
"""

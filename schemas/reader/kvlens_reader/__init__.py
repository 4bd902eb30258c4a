"""Records of kvlens's Kafka topics, from bytes that any client gives."""

from kvlens_reader.changes import BlockChange, ResidencyChange, block_changes, residency_changes
from kvlens_reader.decoding import NotARecord, decode, topic_of, unknown_events
from kvlens_reader.newest import Newest
from kvlens_reader.states import Copies, Resident

__all__ = [
    "BlockChange",
    "Copies",
    "Newest",
    "NotARecord",
    "ResidencyChange",
    "Resident",
    "block_changes",
    "decode",
    "residency_changes",
    "topic_of",
    "unknown_events",
]

"""SQLite world of the simulator.

content   logical content of a file, read from its tables
recorder  commits in order, and their answers, for the history
client    the real store, with its writing calls recorded
faults    connections that fail, and processes that are killed within a transaction
world     the file, its processes and its faults
"""

from .content import Content, ContentReader, difference, digest
from .world import HostClock, SqliteWorld, read_file

__all__ = [
    "Content",
    "ContentReader",
    "HostClock",
    "SqliteWorld",
    "difference",
    "digest",
    "read_file",
]

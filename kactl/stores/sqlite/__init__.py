"""Store in one SQLite file: durable, shared by the processes of one host.

connection         how connections are opened
frame              checksummed byte strings, and columns packed into them
schema             file format; a file that is not a kactl store is rejected and left unchanged
journal            leadership: a snapshot, the changes since, and the resulting columns in memory
snapshot           all leadership at once, written part by part between changes
partition_watches  single partitions with reported writes
checkpoint         transfer of the write-ahead log into the file, concurrent with writes
database           transactions, and the events of the changes they made
identity           whether the path still leads to the open files
other_boots        leases by a clock that cannot be compared
sessions           leases and what depends on them: the controllership, registrations
catalog            topics, configurations, notifications
requests           deletion marks, admin requests, features, producer ids
thread             the one thread in which all of the above runs, except for a checkpoint's first part
lease              renewal of the client's own session; sessions of brokers; polling for changes of other processes
store              all of it as `kactl.stores.base.Store`
"""

from .connection import Connect, Connection, Cursor, connect
from .lease import SqliteSession
from .sessions import NO_HOLDER, Holder
from .store import SqliteStore

__all__ = ["NO_HOLDER", "Connect", "Connection", "Cursor", "Holder", "SqliteSession", "SqliteStore", "connect"]

"""A store in one SQLite file: durable, for the processes of one host.

frame       bytes that know when they were damaged, and columns packed into them
schema      what a file looks like; a file that is something else is refused and left as it is
snapshot    all leadership at once, written part by part between changes
journal     leadership: a snapshot, the changes since, and the columns in memory that both amount to
checkpoint  the write-ahead log moved into the file, while others write
database    transactions, and who is told of what they changed
office      sessions and what lives by them: the controllership, registrations
catalog     topics, configurations, notifications
thread      the one thread in which all of the above runs
lease       our own session, kept alive; the sessions of brokers; the look at what others have changed
store       all of it as `kactl.stores.base.Store`
"""

from .lease import SqliteSession
from .sessions import NO_HOLDER, Holder
from .store import SqliteStore

__all__ = ["NO_HOLDER", "Holder", "SqliteSession", "SqliteStore"]

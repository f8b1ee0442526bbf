"""Exclusive lock on an output folder.

At its end a writer removes the work folders of earlier writers that were killed, and cannot tell them from the work
folder of a concurrent writer. Therefore only one process writes to a folder at a time. The lock is a kernel file lock,
which is released when the process is killed. Remote storage has no locks.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator

from kactl.errors import BadRequest

from .storage import Location


class InUse(BadRequest):
    """Another process writes to the folder."""


@contextlib.contextmanager
def lock_folder(place: Location) -> Iterator[None]:
    """Hold an exclusive lock on an existing folder.

    Raises:
        InUse: another process holds the lock. This function does not wait, because that may take hours.
        OSError: the folder does not exist or cannot be opened.
    """
    if place.is_remote:
        yield
        return
    folder = os.open(place.name, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InUse(
                str(place), "another kactl writes into this folder: wait until it has ended, or name another folder"
            ) from None
        except OSError:
            pass  # the file system has no locks, like remote storage
        yield
    finally:
        os.close(folder)

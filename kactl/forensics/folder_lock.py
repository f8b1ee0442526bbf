"""One writer to a folder at a time: whoever is done removes what those before him left who were killed, and would take
the work of somebody beside him for that.

The kernel keeps count, so that nothing is left of a writer who is killed. Behind a URI there is nobody who would.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator

from kactl.errors import BadRequest

from .storage import Location


class InUse(BadRequest):
    """Another process writes into a folder."""


@contextlib.contextmanager
def lock_folder(place: Location) -> Iterator[None]:
    """Nobody else who asks for it writes into a folder meanwhile; it has to be there.

    Raises:
        InUse: somebody does already. Nothing is waited for: it may take hours.
        OSError: it is not there, or cannot be opened.
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
            pass  # a file system that has no locks; it is as it is behind a URI
        yield
    finally:
        os.close(folder)

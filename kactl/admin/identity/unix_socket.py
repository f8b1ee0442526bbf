"""The Unix socket of a server: the kernel reports which user is at the other end."""

import contextlib
import os
import socket
import stat
import struct
from pathlib import Path
from typing import Final

# Process, user and group: three ints.
_CREDENTIALS: Final = struct.Struct("3i")
BACKLOG: Final = 128
# Only the owner may connect; the check of the user follows in addition.
_UMASK: Final = 0o177


def is_supported() -> bool:
    """Returns whether this platform reports the user at the other end."""
    return hasattr(socket, "SO_PEERCRED")


def bound(path: Path) -> socket.socket:
    """Returns a listening socket. A socket that an earlier server left at this path is replaced.

    Raises:
        OSError: it cannot be bound, or the path is that of something else.
    """
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise FileExistsError(f"{path} exists, and is not a socket")
        path.unlink()
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Before the path exists: a mode that is set afterwards would come too late.
        before = os.umask(_UMASK)
        try:
            listening.bind(os.fspath(path))
        finally:
            os.umask(before)
        listening.listen(BACKLOG)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening


def uid_of(connected: socket.socket) -> int:
    """Returns the user at the other end of a connection, as of when it connected."""
    content = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(content)[1])


def is_own_user(uid: int) -> bool:
    """Returns whether a user may do what this process can: its own user, and root."""
    return uid in (0, os.geteuid())

"""Files that hold one secret each."""

import os
import stat

from kactl.errors import BadConfig
from kactl.runtime.secret import Secret

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def read_secret(path: str, key: str) -> Secret:
    """Returns the first line of a file.

    Args:
        key: the configuration key that names the file, for errors. They never contain the secret.

    Raises:
        BadConfig: the file cannot be read, is empty, belongs to another user, or is readable or writable by others.
    """
    try:
        with open(path, encoding="utf-8") as file:
            status = os.fstat(file.fileno())
            line = file.readline().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise BadConfig(key, f"{path} cannot be read: {reason}") from None
    if stat.S_ISREG(status.st_mode):
        if status.st_uid not in (0, os.geteuid()):
            raise BadConfig(
                key, f"{path} belongs to user {status.st_uid}: it has to belong to the user of kactl, or root"
            )
        if status.st_mode & _OTHERS:
            mode = stat.S_IMODE(status.st_mode)
            raise BadConfig(key, f"others can read or write {path} (mode {mode:04o}): chmod 600 {path}")
    if not line:
        raise BadConfig(key, f"the first line of {path} is empty: write the secret there")
    return Secret(line)

"""Files that hold one secret each."""

import os
import stat
from pathlib import Path

from kactl.model.errors import BadConfig
from kactl.runtime.private_files import check_private
from kactl.runtime.secret import Secret


def read_secret(path: str, key: str) -> Secret:
    """Returns the first line of a file.

    Args:
        key: the configuration key that names the file, for errors. They never contain the secret.

    Raises:
        BadConfig: the file cannot be read, is empty, belongs to another user, or others may use it:
            see `check_private`.
    """
    try:
        with open(path, encoding="utf-8") as file:
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # no pipe of a shell
                check_private(file.fileno(), Path(path), key)
            line = file.readline().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise BadConfig(key, f"{path} cannot be read: {reason}") from None
    if not line:
        raise BadConfig(key, f"the first line of {path} is empty: write the secret there")
    return Secret(line)

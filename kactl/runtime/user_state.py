"""State that programs of one user share: its folder, and the secret of their networks on this host.

The folder depends on the home folder only, so that a server started by a supervisor and a shell of the same user agree
about it.
"""

import errno
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kactl.model.errors import BadConfig

from .private_files import locked, make_folder, read_private, write_private
from .secret import Secret

# Field of errors about the secret.
_FIELD: Final = "secret"
# A folder of its own: earlier versions have made the one around it, which others may read.
_FILE: Final = Path("network", "secret")
_BYTES: Final = 32
SECRET_BYTES_MAX: Final = 4096
# There is no place for files of this user, as without a home on a read-only root.
_NO_PLACE: Final = frozenset({errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR})


def state_folder(env: Mapping[str, str] | None = None) -> Path | None:
    """Returns the folder for the state of programs of this user; None without a home folder, as in a container."""
    home = (os.environ if env is None else env).get("XDG_STATE_HOME") or ""
    try:
        return (Path(home) if home.startswith("/") else Path.home() / ".local" / "state") / "kactl"
    except RuntimeError:
        return None


def user_folder(env: Mapping[str, str] | None = None) -> Path:
    """Returns the same folder; without a home folder it is one for temporary files.

    A file that another user has put there is not read, since it belongs to that user.
    """
    environment = os.environ if env is None else env
    return state_folder(environment) or Path(environment.get("TMPDIR") or "/tmp", f"kactl-{os.geteuid()}")


def secret_path() -> Path:
    """Returns the file of `own_secret`."""
    return user_folder() / _FILE


def own_secret() -> Secret | None:
    """Returns the secret that programs of this user share, which the first one makes.

    Returns:
        None if this user can keep no files: there is no folder for them, and none can be made.

    Raises:
        BadConfig: the file or its folder belongs to another user, others can use it, or it holds no secret.
    """
    path = secret_path()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        make_folder(path.parent, _FIELD)
        try:
            return _read(path)
        except FileNotFoundError:
            with locked(path, _FIELD):  # programs that start at the same time make one
                return _made(path)
    except OSError as error:
        if error.errno in _NO_PLACE:
            return None
        raise BadConfig(_FIELD, f"{path} cannot be used ({error.strerror}): give secret=") from None


def _made(path: Path) -> Secret:
    try:
        return _read(path)
    except FileNotFoundError:
        write_private(path, f"{secrets.token_hex(_BYTES)}\n".encode())
    return _read(path)


def _read(path: Path) -> Secret:
    try:
        secret = Secret(read_private(path, _FIELD, bytes_max=SECRET_BYTES_MAX).strip())
    except FileNotFoundError:
        raise
    except OSError as error:
        raise BadConfig(_FIELD, f"{path} cannot be read ({error.strerror}): remove it, or give secret=") from None
    if len(secret) < _BYTES:
        raise BadConfig(_FIELD, f"{path} holds no secret: remove it, and the next program makes another one")
    return secret

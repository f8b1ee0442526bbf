"""Run files: how programs of the same user reach a running server.

A server writes one into the run folder, named after its address, and removes it when it stops.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from kactl.model.errors import BadConfig
from kactl.runtime.private_files import make_folder, read_private, write_private
from kactl.runtime.user_state import user_folder

KEY: Final = "security.folder"
BYTES_MAX: Final = 64 * 1024
_LOOPBACK: Final = ("127.0.0.1", "::1")
_ANY: Final = ("0.0.0.0", "::")


class RunFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A running server.

    Attributes:
        url: without a path.
        socket: path of its Unix socket; empty if it has none.
        token_file: a file with a token for it; empty if it made none.
        tokens: its token file, which `kactl token` edits.
        ca: file with the authority of its certificate; empty for those of the system.
    """

    url: str
    pid: int
    socket: str = ""
    token_file: str = ""
    tokens: str = ""
    ca: str = ""


def run_folder(env: Mapping[str, str] | None = None) -> Path:
    """Returns the folder of the run files."""
    return user_folder(env) / "run"


def base_name(host: str, port: int) -> str:
    """Returns the name of the files of a server, without extension. Colons would need quotes in many programs."""
    return f"{host.replace(':', '_').replace('%', '_').replace('/', '_')}-{port}"


def write(folder: Path, name: str, run: RunFile) -> Path:
    """Write a run file. Returns its path.

    Raises:
        BadConfig: the folder cannot be used.
        OSError: the file cannot be written.
    """
    make_folder(folder, KEY)
    path = folder / f"{name}.json"
    write_private(path, msgspec.json.encode(run))
    return path


def find(folder: Path, host: str, port: int) -> RunFile | None:
    """Returns the run file of the server at an address; None if there is none that can be read."""
    host = host.lower()
    hosts = [*_LOOPBACK, *_ANY] if host == "localhost" else [host, *(_ANY if host in _LOOPBACK else ())]
    for name in hosts:
        path = folder / f"{base_name(name, port)}.json"
        try:
            return msgspec.json.decode(read_private(path, KEY, bytes_max=BYTES_MAX), type=RunFile)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError, BadConfig):
            continue
    return None

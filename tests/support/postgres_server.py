"""A real PostgreSQL server, which listens in its folder only.

Debian's `postgresql` has the programs; without them tests are skipped with a one-line reason, and with
KACTL_REQUIRE_INTEROP=1 they fail instead.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from .jars import REQUIRE

_MISSING: Final = "there is no PostgreSQL: install Debian's postgresql, and put its initdb and pg_ctl on PATH"


@contextmanager
def running_postgres() -> Iterator[Path]:
    """Start a server. Returns its folder, outside of pytest's folder, which other users cannot enter."""
    if not all(map(shutil.which, ("initdb", "pg_ctl"))):
        if os.environ.get(REQUIRE) == "1":
            pytest.fail(_MISSING)
        pytest.skip(_MISSING)
    with tempfile.TemporaryDirectory(prefix="kactl-postgres-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        user: dict[str, Any] = {}
        if os.geteuid() == 0:  # the server refuses to run as root
            user = {"user": "nobody"}
            shutil.chown(folder, "nobody")
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "check": True, "cwd": folder, **user}
        data = folder / "data"
        subprocess.run(["initdb", "-D", data, "-U", "postgres", "-A", "trust", "-N"], **quiet)
        settings = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off"
        subprocess.run(["pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", settings, "start"], **quiet)
        try:
            yield folder
        finally:
            subprocess.run(["pg_ctl", "-D", data, "-m", "immediate", "stop"], **quiet)

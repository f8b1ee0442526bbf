"""Access of tests to the admin API: where servers list themselves, and the tokens that they make."""

import atexit
import os
import shutil
import tempfile
import time
import urllib.request
from collections.abc import Mapping
from http.client import HTTPResponse
from pathlib import Path
from typing import Any, Final
from urllib.error import URLError
from urllib.parse import urlsplit

from kactl.admin.identity import run_file
from kactl.security.access.tokens import TOKEN

VARIABLE: Final = "XDG_STATE_HOME"
_OWN: Final = "KACTL_TESTS_STATE_HOME"
# Left by runs that were killed.
_OLD_S: Final = 24 * 3600
_PREFIX: Final = "kactl-tests-"


def use_own_state_folder() -> None:
    """Keep the files of servers that tests start out of the user's folder. Processes that are started inherit it.

    Its path is short: a Unix socket's has 107 bytes at most.
    """
    if _OWN in os.environ:
        return
    base = Path(os.environ.get("PYTEST_DEBUG_TEMPROOT") or tempfile.gettempdir())
    for old in base.glob(f"{_PREFIX}*"):
        try:
            if old.stat().st_mtime < time.time() - _OLD_S:
                shutil.rmtree(old, ignore_errors=True)
        except FileNotFoundError:
            continue  # another run has removed it
    folder = os.environ[VARIABLE] = os.environ[_OWN] = tempfile.mkdtemp(prefix=_PREFIX, dir=base)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)


def state_environment() -> dict[str, str]:
    """Returns the variable for processes with an environment of their own."""
    use_own_state_folder()
    return {VARIABLE: os.environ[VARIABLE]}


def secret_of(token: str) -> str:
    """Returns the last part of a token, which may contain what the parts are separated by."""
    matched = TOKEN.fullmatch(token)
    assert matched is not None
    return matched["secret"]


def token_of(url: str) -> str:
    """Returns the token that a server on this machine has made."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    run = run_file.find(run_file.run_folder(), parts.hostname, parts.port)
    if run is None:
        raise URLError(f"no server lists itself at {url}")
    return Path(run.token_file).read_text(encoding="ascii").strip()


def authorization(url: str) -> dict[str, str]:
    """Returns the header that a server on this machine accepts."""
    return {"Authorization": f"Bearer {token_of(url)}"}


def opened(
    url: str, *, data: bytes | None = None, headers: Mapping[str, str] | None = None, timeout: float = 10
) -> HTTPResponse:
    """Send a request with the token of the server; POST if it has a body."""
    request = urllib.request.Request(url, data, authorization(url) | dict(headers or {}))
    answer: Any = urllib.request.urlopen(request, timeout=timeout)
    assert isinstance(answer, HTTPResponse)
    return answer

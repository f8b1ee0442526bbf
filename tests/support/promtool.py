"""promtool of Prometheus: checks rules and evaluates them over series.

The program is in Debian's `prometheus`. Without it tests are skipped with a one-line reason; with
KACTL_REQUIRE_INTEROP=1 they fail instead.
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from .jars import REQUIRE

_MISSING: Final = "there is no promtool: install Debian's prometheus, or put promtool on PATH"


def promtool(*arguments: str | Path, stdin: bytes | None = None) -> str:
    """Run promtool. Returns what it prints; fails the test if it finds an error."""
    program = shutil.which("promtool")
    if program is None:
        if os.environ.get(REQUIRE) == "1":
            pytest.fail(_MISSING)
        pytest.skip(_MISSING)
    done = subprocess.run([program, *map(str, arguments)], input=stdin, capture_output=True, check=False, timeout=120)
    output = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, output
    return output

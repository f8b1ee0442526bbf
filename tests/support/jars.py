"""Jars of ZooKeeper and Kafka, and the Java that runs them.

Maven copies the jars that `tests/interop/pom.xml` names into `.jars/` beside it on first use. The stamp there is
written last; it contains the hash of the pom and the names of the jars, so that an incomplete or outdated folder is
rebuilt, and a stray file never gets on a class path. A lock file serialises callers in several processes.

Without Java or Maven tests are skipped with a one-line reason; with KACTL_REQUIRE_INTEROP=1 they fail instead.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final, NoReturn

import pytest

from .processes import HarnessError, Process
from .tree import ROOT

INTEROP: Final = ROOT / "tests" / "interop"
POM: Final = INTEROP / "pom.xml"
FOLDER: Final = INTEROP / ".jars"
# Kafka 4, which has no ZooKeeper mode, in a folder of its own.
POM_4: Final = INTEROP / "pom-4.xml"
FOLDER_4: Final = INTEROP / ".jars-4"
# Earlier versions, each in a folder of its own. The pom is for any of them: their name replaces VERSION.
POM_OLD: Final = INTEROP / "pom-old.xml"
FOLDER_OLD: Final = INTEROP / ".jars-old"
LOG_CONFIG: Final = INTEROP / "log4j.properties"
REQUIRE: Final = "KACTL_REQUIRE_INTEROP"
JAVA_MIN: Final = 11
JAVA_MIN_4: Final = 17

# Some 60 MB from an empty Maven cache: 15 s on a good line, minutes on a bad one.
FETCH_S: Final = 420.0
# The holder of the lock finishes within FETCH_S.
LOCK_S: Final = FETCH_S + 30.0
LOCK_POLL_S: Final = 0.1
JAVA_VERSION_S: Final = 30.0


class JarsUnavailable(HarnessError):
    """The jars are not available; the message is a one-line reason."""


def require_jars() -> str:
    """Returns the class path. Without one the test is skipped, or fails if KACTL_REQUIRE_INTEROP=1."""
    if reason := missing():
        refuse(reason)
    try:
        return class_path()
    except JarsUnavailable as error:
        refuse(str(error))


def require_jars_4() -> str:
    """Returns the class path of Kafka 4; skips or fails like `require_jars`."""
    if reason := _missing(POM_4, FOLDER_4, JAVA_MIN_4):
        refuse(reason)
    try:
        return class_path_4()
    except JarsUnavailable as error:
        refuse(str(error))


def refuse(reason: str) -> NoReturn:
    """Skip the test that lacks what `reason` names; with KACTL_REQUIRE_INTEROP=1 it fails."""
    if os.environ.get(REQUIRE) == "1":
        pytest.fail(f"{reason}; {REQUIRE}=1 forbids to skip", pytrace=False)
    pytest.skip(reason)


def missing() -> str | None:
    """Returns a one-line reason why real servers cannot run here, or None. Checks programs only; downloads nothing."""
    return _missing(POM, FOLDER, JAVA_MIN)


def _missing(pom: Path, folder: Path, java_min: int) -> str | None:
    java = java_program()
    if java is None:
        return f"interop tests need Java {java_min} or later, and there is no java on PATH or in JAVA_HOME"
    version = _java_version(java)
    if version < java_min:
        return f"interop tests need Java {java_min} or later, and {java} is version {version or 'unknown'}"
    if _stamped_names(folder, _digest(pom)) is None and shutil.which("mvn") is None:
        return "interop tests need Maven once, to fetch Kafka's jars, and there is no mvn on PATH"
    return None


@cache
def class_path() -> str:
    """Returns all jars, joined for `java -cp`. The first call on a machine runs Maven.

    Raises:
        JarsUnavailable: Maven failed, or took too long. The result is cached.
    """
    return _joined(_outcome(POM, FOLDER))


@cache
def class_path_4() -> str:
    """Returns all jars of Kafka 4, as `class_path` returns those of 3.9.

    Raises:
        JarsUnavailable: as `class_path` does.
    """
    return _joined(_outcome(POM_4, FOLDER_4))


@cache
def class_path_of(version: str) -> str:
    """Returns all jars of an earlier version of Kafka, as `class_path` returns those of 3.9.

    Raises:
        JarsUnavailable: as `class_path` does.
    """
    folder = FOLDER_OLD / version
    folder.mkdir(parents=True, exist_ok=True)
    pom = folder / "pom.xml"
    with locked(folder / "pom.lock"):
        pom.write_text(POM_OLD.read_text().replace("VERSION", version))
    return _joined(_outcome(pom, folder))


def java_command(
    main: str, arguments: Sequence[str], *, heap_mb: int, options: Sequence[str] = (), jars: str | None = None
) -> list[str]:
    """Returns the command that runs a class of the jars in a small JVM with a fast start.

    Args:
        options: for Java.
        jars: the class path; `class_path()` if None.
    """
    return [
        java_program() or "java",
        "-Xms64m",
        f"-Xmx{heap_mb}m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",  # the optimizing compiler costs more than it gains in a test
        "-Xshare:auto",
        *([f"-XX:SharedArchiveFile={class_archive()}"] if jars is None and class_archive().exists() else ()),
        f"-Dlog4j.configuration={LOG_CONFIG.as_uri()}",
        *options,  # of two equal options Java uses the later one
        "-cp",
        jars or class_path(),
        main,
        *arguments,
    ]


def class_archive() -> Path:
    """Returns the path of the archive of loaded classes, which exists once `tests/interop/class_archive.py` has built
    it for these jars and this Java."""
    java = hashlib.sha256(_java_description(java_program() or "java").encode()).hexdigest()
    return FOLDER / f"classes-{_digest(POM)[:12]}-{java[:12]}.jsa"


def java_program() -> str | None:
    """Returns the java of JAVA_HOME if it exists, otherwise the one on PATH."""
    home = os.environ.get("JAVA_HOME")
    return (shutil.which("java", path=f"{home}/bin") if home else None) or shutil.which("java")


def fetch(pom: Path, folder: Path) -> list[Path]:
    """Returns the jars of `pom`. Copies them into `folder` unless its stamp lists them.

    Raises:
        JarsUnavailable: Maven failed or took too long, or another process held the lock for too long. There is
            no stamp then, and the next call starts over.
    """
    digest = _digest(pom)
    if (names := _stamped_names(folder, digest)) is None:
        folder.mkdir(exist_ok=True)
        with locked(folder / "lock"):
            names = _stamped_names(folder, digest)  # another process may have finished it during the wait
            if names is None:
                names = _run_maven(pom, folder)
                _write_stamp(folder, digest, names)
    return [folder / name for name in names]


@cache
def _outcome(pom: Path, folder: Path) -> list[Path] | JarsUnavailable:
    try:
        return fetch(pom, folder)
    except JarsUnavailable as error:
        return error


def _joined(outcome: list[Path] | JarsUnavailable) -> str:
    if isinstance(outcome, JarsUnavailable):
        raise outcome
    return os.pathsep.join(map(str, outcome))


def _java_version(java: str) -> int:
    """Returns the major version, or 0 if unknown; versions up to 8 are named 1.8 and so on."""
    found = re.search(r'version "(?:1\.)?(\d+)', _java_description(java))
    return int(found[1]) if found else 0


@cache
def _java_description(java: str) -> str:
    """Returns what Java prints about its version and build; empty if it does not run."""
    try:
        return subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=JAVA_VERSION_S, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return ""


def _digest(pom: Path) -> str:
    return hashlib.sha256(pom.read_bytes()).hexdigest()


def _stamped_names(folder: Path, digest: str) -> list[str] | None:
    """Returns the names in the stamp, or None if it belongs to another pom or a named jar is missing."""
    try:
        stamped, *names = (folder / "stamp").read_text().splitlines()
    except (FileNotFoundError, ValueError):
        return None
    whole = stamped == digest and all((folder / name).is_file() for name in names)
    return names if whole and names else None


def _write_stamp(folder: Path, digest: str, names: Sequence[str]) -> None:
    draft = folder / "stamp.new"
    draft.write_text("\n".join([digest, *names]))
    draft.replace(folder / "stamp")


def _run_maven(pom: Path, folder: Path) -> list[str]:
    (folder / "stamp").unlink(missing_ok=True)
    for old in (*folder.glob("*.jar"), *folder.glob("*.jsa")):
        old.unlink()
    command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
    options = ["-DincludeScope=runtime", f"-DoutputDirectory={folder}"]  # file names keep their versions
    with Process([*command, *options], output=folder / "mvn.log") as maven:
        try:
            code = maven.wait(FETCH_S)
        except HarnessError:
            raise JarsUnavailable(f"mvn did not fetch Kafka's jars within {FETCH_S:g} s") from None
        if code != 0:
            first = next((line for line in maven.text.splitlines() if "ERROR" in line), "it said nothing")
            raise JarsUnavailable(f"mvn could not fetch Kafka's jars, see {maven.output}: {first}")
    return sorted(jar.name for jar in folder.glob("*.jar"))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file `path` against other processes.

    Raises:
        JarsUnavailable: another process holds it for more than LOCK_S.
    """
    deadline = time.monotonic() + LOCK_S
    with path.open("a") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise JarsUnavailable(f"another process holds {path} for more than {LOCK_S:g} s") from None
                time.sleep(LOCK_POLL_S)
        yield  # closing the file releases the lock

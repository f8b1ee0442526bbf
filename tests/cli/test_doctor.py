"""`kactl doctor`: local checks, servers and remedies."""

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kactl.cli import doctor
from tests.support.processes import free_port

from .server import Up, kactl, kactl_process

LOCAL_CHECKS = {"python", "uvloop", "java", "pyspark", "pyarrow", "kazoo", "open-files"}


@pytest.fixture
def responding_zookeeper() -> Iterator[str]:
    """Address of a server that responds to `srvr` once, as ZooKeeper does."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def respond() -> None:
            connection, _ = listener.accept()
            with connection:
                assert connection.recv(4) == b"srvr"
                connection.sendall(b"Zookeeper version: 3.8.4\nMode: leader\nNode count: 5\n")

        thread = threading.Thread(target=respond, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join(10)


def test_local_checks_and_clock_pass(up: Up) -> None:
    done = kactl_process("doctor", "-o", "json", "--server", up.url)

    checks = {check["check"]: check for check in json.loads(done.out)}
    assert done.code == 0
    assert set(checks) == LOCAL_CHECKS | {"clock"}
    assert {checks[name]["result"] for name in LOCAL_CHECKS - {"open-files"}} == {"pass"}
    assert int(checks["java"]["value"]) >= 17
    assert checks["clock"]["result"] == "pass"
    assert abs(float(checks["clock"]["value"].removesuffix("s"))) < 3


def test_missing_server_does_not_fail() -> None:
    done = kactl("doctor", "--server", f"http://127.0.0.1:{free_port()}")

    assert done.code == 0
    assert "no server at" in done.out


def test_unreachable_zookeeper_server_fails(responding_zookeeper: str, tmp_path: Path) -> None:
    unreachable = f"127.0.0.1:{free_port()}"
    file = tmp_path / "kactl.toml"
    file.write_text(
        f'node-id = 1\n[store]\nkind = "zookeeper"\nconnect = "{responding_zookeeper},{unreachable}/kafka"\n'
    )

    done = kactl("doctor", "--config", file, "-o", "json")

    checks = {check["check"]: check for check in json.loads(done.out)}
    assert done.code == 1
    assert checks[f"zookeeper {responding_zookeeper}"]["value"] == "leader"
    assert checks[f"zookeeper {unreachable}"]["result"] == "FAIL"
    assert "check that it runs" in checks[f"zookeeper {unreachable}"]["detail"]


def test_sqlite_configuration_skips_zookeeper(tmp_path: Path) -> None:
    file = tmp_path / "kactl.toml"
    file.write_text("node-id = 1\n")

    done = kactl("doctor", "--config", file)

    assert done.code == 0
    assert f"not used: store.kind in {file} is sqlite" in done.out


def test_missing_package_is_reported_with_its_extra() -> None:
    check = doctor._package("nothing", "a-package-that-does-not-exist", "pipeline", "for something")

    assert check.result == "missing"
    assert check.detail == "for something: pip install 'kactl[pipeline]'"


def test_low_open_file_limit_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (1024, 2048))

    check = doctor._files()

    assert (check.result, check.value) == ("WARN", "1024")
    assert "ulimit -n 4096" in check.detail
    assert "root must raise the limit of 2048" in check.detail

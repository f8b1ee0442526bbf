"""`kactl doctor`: local checks, servers and remedies."""

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kactl.cli import doctor
from kactl.cli.doctor_check import Check
from kactl.cli.exits import Exit
from tests.support import tree
from tests.support.certificates import Authority
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


@pytest.mark.parametrize(("more", "result"), [("", "WARN"), ('visible-on = ["INTERNAL"]\n', "pass")])
def test_clients_that_see_kactl_are_reported(tmp_path: Path, more: str, result: str) -> None:
    file = tmp_path / "kactl.toml"
    listeners = '["INTERNAL://127.0.0.1:9090", "CLIENT://127.0.0.1:9091"]'
    file.write_text(f'node-id = 1\n[kafka]\nlistener-name = "INTERNAL"\nlisteners = {listeners}\n{more}')

    checks = {check["check"]: check for check in json.loads(kactl("doctor", "--config", file, "-o", "json").out)}

    assert checks["kafka listeners"]["result"] == result
    assert ("clients on CLIENT see kactl" in checks["kafka listeners"]["detail"]) == (result == "WARN")


def test_missing_package_is_reported_with_its_extra() -> None:
    check = doctor._package("nothing", "a-package-that-does-not-exist", "pipeline", "for something")

    assert check.result == "missing"
    assert check.detail == f"for something: pip install -e '{tree.ROOT}[pipeline]'"


def test_low_open_file_limit_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (1024, 2048))

    check = doctor._files()

    assert (check.result, check.value) == ("WARN", "1024")
    assert "ulimit -n 4096" in check.detail
    assert "root must raise the limit of 2048" in check.detail


def test_open_api_and_ending_tokens_are_reported(tmp_path: Path) -> None:
    tokens, config = tmp_path / "security" / "tokens.toml", tmp_path / "kactl.toml"
    config.write_text(f'node-id = 1\n[api]\nlisten = "0.0.0.0:8080"\ntokens = "{tokens}"\n')
    kactl("token", "create", "brief", "--role", "viewer", "--expires", "1d", "--config", config,
          "--output", tmp_path / "brief")  # fmt: skip

    checked = kactl("doctor", "--config", config, "-o", "jsonl")

    found = {check.check: check for check in checked.jsonl(Check)}
    assert checked.code == Exit.FAILED
    assert "has no TLS" in found["api 0.0.0.0:8080"].detail
    assert found[f"tokens {tokens}"].result == "WARN"
    assert "kactl token rotate" in found[f"tokens {tokens}"].detail

    config.write_text('node-id = 1\n[api]\nlisten = "127.0.0.1:8080"\n')
    found = {check.check: check for check in kactl("doctor", "--config", config, "-o", "jsonl").jsonl(Check)}
    assert found["api 127.0.0.1:8080"].result == "pass"


@pytest.mark.parametrize(("more", "warns"), [("", True), ('probe-listen = "127.0.0.1:8081"\n', False)])
def test_probes_that_need_a_certificate_are_reported(tmp_path: Path, more: str, warns: bool) -> None:
    signed = Authority(tmp_path).sign("server")
    tls = f'[api.tls]\ncert = "{signed.cert}"\nkey = "{signed.key}"\nclient-auth = "required"\n'
    config = tmp_path / "kactl.toml"
    config.write_text(f'node-id = 1\n[api]\n{more}{tls}client-ca = "{tmp_path / "authority.pem"}"\n')

    found = {check.check: check for check in kactl("doctor", "--config", config, "-o", "jsonl").jsonl(Check)}

    assert ("probes" in found) is warns
    assert not warns or "api.probe-listen" in found["probes"].detail


@pytest.mark.parametrize(("folder", "result"), [("", "pass"), ("/proc/none", "WARN")])
def test_network_that_can_keep_no_secret_is_insecure(folder: str, result: str, tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": folder or str(tmp_path)}
    file = tmp_path / "kactl.toml"
    file.write_text('node-id = 0\n[network]\nlisten = "127.0.0.1:7373"\n')

    done = kactl("doctor", "-o", "json", "--config", file, "--server", f"http://127.0.0.1:{free_port()}", env=env)

    check = next(check for check in json.loads(done.out) if check["check"] == "network")
    assert check["result"] == result
    assert ("insecure: it asks for no secret" in check["detail"]) == (result == "WARN")


def test_secret_of_another_user_fails(tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": str(tmp_path)}
    secret = tmp_path / "kactl" / "network" / "secret"
    secret.parent.mkdir(parents=True)
    secret.parent.chmod(0o700)
    secret.write_text("x" * 64)
    secret.chmod(0o644)
    file = tmp_path / "kactl.toml"
    file.write_text('node-id = 0\n[network]\nlisten = "127.0.0.1:7373"\n')

    done = kactl("doctor", "-o", "json", "--config", file, "--server", f"http://127.0.0.1:{free_port()}", env=env)

    check = next(check for check in json.loads(done.out) if check["check"] == "network")
    assert check["result"] == "FAIL"
    assert "others can use" in check["detail"]

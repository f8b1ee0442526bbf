"""Hostile clients of a `kactl up` process: nothing changes, and the audit trail contains the attempts."""

import contextlib
import http.client
import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec
import pytest

from kactl.admin.audit_file import verify
from kactl.admin.limits import STREAMS_PER_CLIENT_MAX
from kactl.admin.routes.route_table import ROUTES
from kactl.admin.schema import AuditPage, AuditRecord
from tests.cli.server import QUICK, Up, kactl
from tests.support import api_access
from tests.support.hostile_minutes import SECONDS

pytestmark = pytest.mark.slow
PATIENCE_S: Final = 60
RSS_KIB_MAX: Final = 64 * 1024
_BODY: Final = b'{"name": "stolen", "partitions": 1, "replication_factor": 1}'


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Cluster with a topic, whose audit trail is in files. All requests are refused, so that the tests share it."""
    folder = tmp_path_factory.mktemp("hostile")
    settings = {"KACTL_AUDIT__FOLDER": str(folder / "audit"), "KACTL_API__READS_PER_SECOND": "10000"}
    server = Up(folder, env={**QUICK, **settings})
    server("topic", "create", "orders", "--partitions", "3", "--replication-factor", "3")
    yield server
    server.close()
    assert verify(folder / "audit").problems == ()


def token(up: Up, name: str, role: str = "viewer", *more: str) -> str:
    """Returns a token, which is the same for the same name."""
    file = up.folder / f"{name}.token"
    if file.exists():
        return file.read_text(encoding="ascii").strip()
    made = up("token", "create", name, "--role", role, "--output", file, *more)
    assert made.code == 0, made.err
    return file.read_text(encoding="ascii").strip()


def ask(up: Up, method: str, path: str, headers: dict[str, str], body: bytes | None = None) -> tuple[int, bytes]:
    """Send a request over a connection of its own, with nothing that is not named here but the length."""
    where = urlsplit(up.url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=PATIENCE_S)
    try:
        connection.putrequest(method, path, skip_host="Host" in headers, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name, value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, b"" if answer.status == 200 and path.endswith("/stream") else answer.read()
    finally:
        connection.close()


def accepted(up: Up, credential: str) -> bool:
    return ask(up, "GET", "/v1/topics", {"Authorization": f"Bearer {credential}"})[0] == 200


def writes() -> list[tuple[str, str]]:
    """Returns all routes that change something, for existing objects."""
    values = {"topic": "orders", "partition": 0, "id": 1, "broker": 1}
    harmless = {"/v1/reassignment-plans", "/v1/whatif", "/v1/login", "/v1/login-codes"}
    return [(each.method, each.path.format(**values)) for each in ROUTES if each.writes and each.path not in harmless]


def state(up: Up) -> tuple[bytes, bytes]:
    """Returns partitions and topics, with their epochs."""
    with api_access.opened(f"{up.url}/v1/partitions") as rows, api_access.opened(f"{up.url}/v1/topics") as topics:
        return re.sub(rb'"as_of":{.*?}', b"", rows.read()), re.sub(rb'"as_of":{.*?}', b"", topics.read())


def trail(up: Up) -> list[AuditRecord]:
    with api_access.opened(f"{up.url}/v1/audit?limit=10000") as answer:
        return list(msgspec.json.decode(answer.read(), type=AuditPage).items)


def resident_kib(up: Up) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{up.process.pid}/status").read_text(encoding="ascii"))
    assert found is not None
    return int(found[1])


def streams(up: Up) -> int:
    with api_access.opened(f"{up.url}/metrics") as answer:
        found = re.search(rb"^kactl_sse_client_count(?:{.*?})? (\d+)", answer.read(), re.MULTILINE)
    assert found is not None
    return int(found[1])


def sockets(up: Up) -> int:
    """Returns the number of open sockets. SQLite opens and closes further files of its own at any time."""
    count = 0
    for file in Path(f"/proc/{up.process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            count += os.readlink(file).startswith("socket:")
    return count


def test_strangers_change_nothing_and_are_recorded(up: Up) -> None:
    revoked = token(up, "revoked", "admin")
    networks = token(up, "elsewhere", "admin", "--networks", "192.0.2.0/24")
    found = re.search(r"kactl_(\w{8})_", revoked)
    assert found is not None
    up.until(lambda: accepted(up, revoked), "the server has read the token file")
    assert up("token", "revoke", found[1]).code == 0
    up.until(lambda: not accepted(up, revoked), "the token is revoked")
    before, records = state(up), len(trail(up))
    credentials: list[dict[str, str]] = [
        {},
        {"Authorization": f"Bearer {revoked}"},
        {"Authorization": f"Bearer {networks}"},
        {"Authorization": "Bearer kactl_aaaaaaaa_" + 43 * "a"},
        {"Authorization": "Bearer kactlticket_" + 80 * "a" + "." + 43 * "a"},
        {"Authorization": "Basic YWRtaW46YWRtaW4="},
        {"Cookie": "session=admin", "X-Forwarded-For": "127.0.0.1", "Forwarded": "for=127.0.0.1"},
        {"X-Kactl-Request": "1"},
    ]

    statuses = {
        ask(up, method, path, {"Content-Type": "application/json"} | credential, _BODY)[0]
        for method, path in writes()
        for credential in credentials
    }

    # 429 after many failures of one address, which costs a valid token nothing.
    assert statuses <= {401, 429}
    assert state(up) == before
    new = trail(up)[records:]
    denied = {each.operation for each in new if each.result == "denied"}
    assert {each.result for each in new} == {"denied"}
    assert any("/v1/topics" in operation for operation in denied)
    assert {each.principal for each in new} == {""}


def test_stolen_viewer_token_changes_nothing(up: Up) -> None:
    stolen = {"Authorization": f"Bearer {token(up, 'stolen')}", "Content-Type": "application/json"}
    up.until(lambda: ask(up, "GET", "/v1/topics", stolen)[0] == 200, "the server has read the token file")
    before, memory = state(up), resident_kib(up)

    changes = [ask(up, method, path, stolen, None if method == "DELETE" else b"{}")[0] for method, path in writes()]
    forbidden = [ask(up, "GET", path, stolen)[0] for path in ("/v1/audit",)]
    for _ in range(5):
        for route in ROUTES:
            if route.method == "GET" and not route.path.endswith("/stream"):
                path = route.path.format(topic="orders", partition=0, id=1, broker=1, event=1)
                assert ask(up, "GET", path, stolen)[0] < 500 or path.endswith("/leader"), path

    # Where a dry run is possible, the body is read first, and the response names the missing field.
    assert set(changes) <= {400, 403}
    assert 403 in changes
    assert forbidden == [403]
    assert state(up) == before
    assert resident_kib(up) - memory < RSS_KIB_MAX
    assert "token:stolen" in {each.principal for each in trail(up) if each.result == "denied"}


def test_one_client_has_few_streams(up: Up) -> None:
    credential = f"Authorization: Bearer {token(up, 'streams')}\r\n"
    where = urlsplit(up.url)
    up.until(lambda: accepted(up, credential.split()[-1]), "the server has read the token file")
    # The stream of a client that has disconnected ends with the next thing that is sent to it.
    up.until(lambda: streams(up) == 0, "the streams of an earlier round have ended")
    connections = []
    heads = []
    try:
        for _ in range(STREAMS_PER_CLIENT_MAX + 5):
            connection = socket.create_connection((where.hostname or "", where.port or 0), timeout=PATIENCE_S)
            connections.append(connection)
            connection.sendall(f"GET /v1/events/stream HTTP/1.1\r\nHost: {where.netloc}\r\n{credential}\r\n".encode())
            heads.append(int(connection.recv(4096).split(b" ", 2)[1]))
    finally:
        for connection in connections:
            connection.close()

    assert sorted(heads) == [200] * STREAMS_PER_CLIENT_MAX + [503] * 5


def test_page_of_a_rebound_name_reads_nothing(up: Up) -> None:
    """A page of evil.example, whose name has come to mean this machine, even if it had a token."""
    local = api_access.authorization(up.url)
    port = urlsplit(up.url).port
    for path in ("/v1/topics", "/v1/events/stream", "/livez", "/"):
        status, body = ask(up, "GET", path, {"Host": f"evil.example:{port}"} | local)
        assert (status, b"orders" in body) == (421, False)


def test_page_of_another_site_writes_nothing(up: Up) -> None:
    local = api_access.authorization(up.url) | {"Content-Type": "application/json"}
    before = state(up)
    for own in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
        assert ask(up, "POST", "/v1/topics", local | own, _BODY)[0] == 403
        assert ask(up, "POST", "/v1/login-codes", local | own, b"{}")[0] == 403
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert ask(up, "POST", "/v1/topics", local | form, b"name=stolen")[0] == 415

    assert state(up) == before


def test_reason_cannot_write_into_the_log(up: Up) -> None:
    local = api_access.authorization(up.url) | {"Content-Type": "application/json"}
    for forged in (
        "\\r\\n2026-11-23 CRITICAL forged-by-reason",
        "\\u001b]0;forged-by-reason\\u0007",
        "\\u2028forged-by-reason",
    ):
        body = b'{"name": "x", "partitions": 1, "reason": "' + forged.encode().replace(b"\\\\", b"\\") + b'"}'
        assert ask(up, "POST", "/v1/topics", local, body)[0] == 400

    lines = [line for line in up.process.text.splitlines() if "forged-by-reason" in line]
    assert not any(line.startswith("2026-11-23 CRITICAL") or "\x1b" in line for line in lines)


def test_probes_are_answered_among_half_requests(up: Up) -> None:
    where = urlsplit(up.url)
    waiting = []
    try:
        for _ in range(300):
            waiting.append(socket.create_connection((where.hostname or "", where.port or 0), timeout=PATIENCE_S))
            waiting[-1].sendall(b"GET /livez HTTP/1.1\r\nHost: ")
        statuses = [ask(up, "GET", "/livez", {})[0] for _ in range(20)]
    finally:
        for connection in waiting:
            connection.close()

    assert statuses == [200] * 20


@pytest.mark.long  # the stories of this module, one after the other for minutes
def test_repeated_stories_leave_no_memory_and_no_connections(up: Up) -> None:
    stories = (
        test_stolen_viewer_token_changes_nothing,
        test_one_client_has_few_streams,
        test_page_of_a_rebound_name_reads_nothing,
        test_page_of_another_site_writes_nothing,
        test_reason_cannot_write_into_the_log,
        test_probes_are_answered_among_half_requests,
    )
    before: tuple[int, int] | None = None
    end_s = time.monotonic() + SECONDS
    while before is None or time.monotonic() < end_s:
        for story in stories:
            story(up)
        if before is None:  # the first round fills caches, and buffers that stay
            up.until(lambda: streams(up) == 0, "the streams of the first round have ended")
            before = resident_kib(up), sockets(up)

    up.until(lambda: sockets(up) <= before[1], "the connections of the stories are closed")
    assert resident_kib(up) - before[0] < RSS_KIB_MAX
    assert up.epoch() == 1  # the same controllership


def test_hangup_reads_tokens_again(up: Up) -> None:
    late = token(up, "late")

    os.kill(up.process.pid, signal.SIGHUP)

    up.until(lambda: accepted(up, late), "the token is known")
    assert up.epoch() == 1  # the same process


def test_credential_on_the_command_line_is_no_option(up: Up) -> None:
    refused = up("--token", "kactl_aaaaaaaa_" + 43 * "a", "get", "topics")

    assert refused.code == 2
    assert "43" not in refused.err
    assert 20 * "a" not in refused.err


def test_security_folder_of_others_refuses_to_start(tmp_path: Path) -> None:
    folder = tmp_path / "security"
    folder.mkdir()
    folder.chmod(0o707)
    refused = kactl(
        "up",
        "--data-dir",
        tmp_path / "data",
        env={"KACTL_SECURITY__FOLDER": str(folder), "KACTL_API__LISTEN": "127.0.0.1:0"},
    )

    assert refused.code != 0
    assert f"chmod 700 {folder}" in refused.err
    assert list(folder.iterdir()) == []

"""The dashboard of one viewer while another viewer repeats the largest requests that the role may send."""

import http.client
import itertools
import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Response, expect

from kactl.admin.limits import STREAMS_PER_CLIENT_MAX
from tests.cli.server import QUICK, Up

from .conftest import Visit
from .test_pages import PAGES

pytestmark = pytest.mark.slow

# As many dry runs at once have ended a controllership.
ATTACKERS: Final = 7
ANSWER_S: Final = 60.0
ROUNDS: Final = 2
# A viewer may not read the audit trail.
READ: Final = {place: text for place, text in PAGES.items() if place != "audit"} | {"whatif?kill=2": "If 2 fails"}
_LISTS: Final = [[1, 2]] * 50_000
ATTACKS: Final[tuple[tuple[str, str, Any], ...]] = (
    ("POST", "/v1/topics", {"name": "evil", "dry_run": True, "assignment": [[1, 2]] * 500_000}),
    ("POST", "/v1/topics", {"name": "evil", "dry_run": True, "assignment": _LISTS}),
    ("PATCH", "/v1/topics/orders", {"dry_run": True, "partitions": 50_000, "assignment": _LISTS}),
    ("POST", "/v1/elections", {"type": "preferred", "dry_run": True, "all": True}),
    ("POST", "/v1/reassignment-plans", {"topics": ["t"] * 10_000}),
    ("POST", "/v1/whatif", {"kill": [{"brokers": [1, 2]}] * 20}),
    ("GET", "/v1/partitions?limit=1000&topic=" + ",".join(["*a*e*"] * 500), None),
    ("GET", "/v1/events?limit=1000", None),
    ("GET", "/v1/openapi.json", None),
)
_BODIES: Final = [
    (method, path, None if content is None else json.dumps(content, separators=(",", ":")).encode())
    for method, path, content in ATTACKS
]


@pytest.fixture
def own_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Cluster whose controllership a busy machine does not end."""
    server = Up(tmp_path_factory.mktemp("attacked"), env={**QUICK, "KACTL_STORE__SESSION_TIMEOUT": "30s"})
    server("topic", "create", "orders", "--partitions", "6", "--replication-factor", "3")
    yield server
    if server.process.alive:
        server.process.kill()


def viewer(up: Up, name: str) -> str:
    """Returns a new token that the server knows."""
    file = up.folder / f"{name}.token"
    made = up("token", "create", name, "--role", "viewer", "--output", file)
    assert made.code == 0, made.err
    token = file.read_text(encoding="ascii").strip()
    up.until(lambda: _sent(up, token, "GET", "/v1/topics", None) == 200, "the server has read the token file")
    return token


def _sent(up: Up, token: str, method: str, path: str, body: bytes | None) -> int:
    """Returns the status; 0 if the server closed the connection before."""
    where = urlsplit(up.url)
    headers = {"Authorization": f"Bearer {token}"} | ({} if body is None else {"Content-Type": "application/json"})
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=ANSWER_S)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    except (ConnectionError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


@contextmanager
def attacked(up: Up, token: str) -> Iterator[Counter[int]]:
    """Yields the statuses that the attackers get within the block."""
    ended = threading.Event()
    statuses: Counter[int] = Counter()

    def attack(first: int) -> None:
        for method, path, body in itertools.islice(itertools.cycle(_BODIES), first, None):
            if ended.is_set():
                return
            statuses[_sent(up, token, method, path, body)] += 1

    attackers = [threading.Thread(target=attack, args=(first,), daemon=True) for first in range(ATTACKERS)]
    streams = [_stream(up, token) for _ in range(STREAMS_PER_CLIENT_MAX)]
    for attacker in attackers:
        attacker.start()
    try:
        yield statuses
    finally:
        ended.set()
        for attacker in attackers:
            attacker.join(ANSWER_S * 2)
        for stream in streams:
            stream.close()


def _stream(up: Up, token: str) -> http.client.HTTPConnection:
    """Returns a connection with an event stream that is not read."""
    where = urlsplit(up.url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=ANSWER_S)
    connection.request("GET", "/v1/events/stream", headers={"Authorization": f"Bearer {token}"})
    return connection


def test_every_page_is_answered_while_another_viewer_attacks(browser: Browser, own_up: Up) -> None:
    own, other = viewer(own_up, "dashboard"), viewer(own_up, "attacker")
    epoch = own_up.epoch()
    context = browser.new_context()
    visit = Visit(context, own_up.url).log_in(own)
    answered: Counter[tuple[int, str]] = Counter()

    def count(response: Response) -> None:
        answered[response.status, urlsplit(response.url).path] += 1

    visit.page.on("response", count)
    with attacked(own_up, other) as statuses:
        own_up.until(lambda: statuses[429] > 0, "the attacker has used its budget")
        for place, text in list(READ.items()) * ROUNDS:
            expect(visit.go(place).locator("main")).to_contain_text(text)
        expect(visit.page.locator("#connection")).to_contain_text("live")
    context.close()

    assert {each: count for each, count in answered.items() if each[0] != 200} == {}
    assert visit.errors == []
    assert own_up.epoch() == epoch
    assert own_up("get", "controller").code == 0

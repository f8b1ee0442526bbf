"""The largest permitted request of each kind, from the weakest role that may send it: no step holds the event loop."""

import asyncio
import http.client
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from kactl.admin.identity.token_file import write_tokens
from kactl.admin.route import Route
from kactl.admin.routes.route_table import ROUTES
from kactl.model import PARTITIONS_OF_A_TOPIC_MAX
from kactl.runtime.budget import Rate, Unit
from kactl.security.access.role import Role
from tests.admin.conftest import served
from tests.admin.test_access import Team, token
from tests.support.loop_steps import STEP_UNITS_MAX, Steps, loop_steps

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
LARGE = 20_000
REPEATED = 3


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """The loop whose steps can be measured."""
    return "asyncio", {"use_uvloop": False}


@pytest.fixture
async def team(tmp_path: Path) -> AsyncIterator[Team]:
    file = tmp_path / "tokens.toml"
    made = {role: token(role.label, role) for role in (Role.VIEWER, Role.OPERATOR, Role.ADMIN)}
    write_tokens(file, [each.record for each in made.values()])
    async with served(settings={"api.tokens": str(file)}) as server:
        await server.controller.create_topic("large", partitions=LARGE, replication_factor=3)
        yield Team(server, file, made)


def _names(count: int) -> list[dict[str, Any]]:
    return [{"topic": "large", "partition": number} for number in range(count)]


def _named(count: int) -> list[dict[str, Any]]:
    return [{"topic": "large", "partition": number, "replicas": [1, 2, 3]} for number in range(count)]


LISTS: list[list[int]] = [[1, 2, 3]] * PARTITIONS_OF_A_TOPIC_MAX
# By method and path; a route that takes a body, or has a large answer, has an entry.
LARGEST: dict[str, list[Any]] = {
    "POST /v1/topics": [
        {"name": "n", "dry_run": True, "partitions": PARTITIONS_OF_A_TOPIC_MAX, "replication_factor": 3},
        {"name": "n", "dry_run": True, "assignment": LISTS},
        {"name": "n", "dry_run": True, "assignment": [[]] * 1_000_000},
        {"name": "n", "dry_run": True, "config": {f"k{number}": "v" * 4096 for number in range(100)}},
    ],
    "PATCH /v1/topics/{topic}": [
        {"dry_run": True, "partitions": PARTITIONS_OF_A_TOPIC_MAX},
        {"dry_run": True, "partitions": PARTITIONS_OF_A_TOPIC_MAX, "assignment": LISTS[LARGE:]},
        {"dry_run": True, "partitions": LARGE + 1, "assignment": [[1]] * 800_000},
    ],
    "POST /v1/elections": [
        {"type": "preferred", "dry_run": True, "all": True},
        {"type": "preferred", "dry_run": True, "partitions": _names(LARGE)},
        {"type": "preferred", "dry_run": True, "partitions": [{"topic": "large", "partition": 1}] * 100_000},
    ],
    "POST /v1/reassignments": [{"dry_run": True, "partitions": _named(16_000)}],
    "POST /v1/reassignment-plans": [{}, {"topics": ["t"] * 10_000}, {"without": [1]}],
    "POST /v1/whatif": [{}, {"kill": [{"brokers": [1, 2]}] * 20}],
    "GET /v1/partitions": ["?limit=1000", "?limit=1000&topic=" + ",".join(["*a*e*"] * 500)],
    "GET /v1/topics": ["?limit=1000"],
    "GET /v1/events": ["?limit=1000"],
}
# Those that change something have no form for a reader; a stream does not end.
SKIPPED = {"POST /v1/controller/resign", "GET /v1/events/stream", "POST /v1/login-codes", "POST /v1/login"}


def _requests() -> Iterator[Any]:
    for route in ROUTES:
        key = f"{route.method} {route.path}"
        if key in SKIPPED or (route.takes_body is not None and key not in LARGEST and route.role is not Role.VIEWER):
            continue
        for number, content in enumerate(LARGEST.get(key, [None])):
            yield pytest.param(route, content, id=f"{key} {number}")


def _send(team: Team, route: Route, content: Any) -> int:
    """Send a request from a thread of its own. Returns the status."""
    url = urlsplit(team.server.url)
    path = route.path.replace("{topic}", "large").replace("{partition}", "0").replace("{id}", "1")
    path = path.replace("{broker}", "1").replace("{event}", "1")
    headers = {"Authorization": f"Bearer {team.tokens[max(route.least_role, Role.VIEWER)].text}"}
    body = None
    if isinstance(content, str):
        path += content
    elif content is not None or route.writes:
        body = json.dumps({} if content is None else content, separators=(",", ":")).encode()
        headers["Content-Type"] = "application/json"
    connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=60)
    try:
        connection.request(route.method, path, body, headers)
        return connection.getresponse().status
    finally:
        connection.close()


async def _longest(team: Team, steps: Steps, route: Route, content: Any) -> tuple[float, str]:
    """Returns the shortest of the longest steps of some requests: a collection of garbage may fall into one of them."""
    found = []
    for _ in range(REPEATED):
        status = await asyncio.to_thread(_send, team, route, content)
        assert status != 500, content
        found.append(steps.take())
    return min(found)


async def test_no_request_of_the_weakest_role_holds_the_event_loop(team: Team) -> None:
    team.server.controller.budget.limit(Unit.WORK, Rate(0, 0))  # the work itself is measured here
    slow = {}
    with loop_steps() as steps:
        for parameters in _requests():
            route, content = parameters.values
            units, what = await _longest(team, steps, route, content)
            if units > STEP_UNITS_MAX:
                slow[parameters.id] = f"{units:.0f} units: {what[:300]}"

    assert not slow


async def test_viewer_that_causes_much_work_is_turned_away_and_nobody_else(team: Team) -> None:
    route = next(route for route in ROUTES if (route.method, route.path) == ("POST", "/v1/topics"))
    content = LARGEST["POST /v1/topics"][1]

    statuses = [await asyncio.to_thread(_send, team, route, content) for _ in range(12)]
    refused = await team.ask(Role.VIEWER, "GET", "/v1/controller")

    assert statuses[0] == 200
    assert statuses[-1] == refused.status == 429
    assert int(refused.headers["Retry-After"]) > 0
    assert "milliseconds of work" in refused.json()["detail"]
    assert (await team.ask(Role.OPERATOR, "GET", "/v1/controller")).status == 200


async def test_assignment_with_too_many_entries_is_refused_before_it_is_decoded(team: Team) -> None:
    content = {"name": "n", "dry_run": True, "assignment": [[1, 2]] * 500_000}
    route = next(route for route in ROUTES if (route.method, route.path) == ("POST", "/v1/topics"))

    assert await asyncio.to_thread(_send, team, route, content) == 400

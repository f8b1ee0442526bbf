"""Arbitrary requests get a response or a problem document, and rejected ones change nothing."""

from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kactl.admin.schema import Problem
from tests.admin.conftest import JSON, Answered, Served
from tests.support.marks import at_most

pytestmark = pytest.mark.anyio
# One server handles all examples, so each finds the changes of the previous ones.
one_server = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=at_most(150))

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20)
)
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)
broker = st.integers(-1, 5) | anything
partition_name = st.fixed_dictionaries(
    {"topic": st.sampled_from(["orders", "nix", ""]) | anything, "partition": st.integers(-1, 6) | anything}
)
# Nearly valid: each field is omitted, valid, or arbitrary.
topic = st.fixed_dictionaries(
    {},
    optional={
        "name": st.text("abc._- ", max_size=5) | anything,
        "partitions": st.integers(-1, 5) | anything,
        "replication_factor": st.integers(-1, 5) | anything,
        "assignment": st.lists(st.lists(broker, max_size=3), max_size=3) | anything,
        "config": st.dictionaries(st.text(max_size=5), st.text(max_size=5) | anything, max_size=2) | anything,
        "dry_run": st.booleans() | anything,
        "timeout_ms": st.just(0) | st.integers(max_value=0) | st.text(max_size=3),
        "reason": st.text(max_size=5) | anything,
        "more": anything,
    },
)
election = st.fixed_dictionaries(
    {"type": st.sampled_from(["preferred", "unclean", "lucky"]) | anything},
    optional={
        "partitions": st.lists(partition_name | anything, max_size=3) | anything,
        "all": st.booleans() | anything,
        "dry_run": st.booleans() | anything,
        "reason": anything,
    },
)


async def check_response(server: Served, method: str, path: str, **more: Any) -> None:
    before = await server.state()

    answer: Answered = await server.ask(method, path, **more)

    assert answer.status < 500, answer.body
    if answer.status >= 400:
        assert answer.headers["Content-Type"] == "application/problem+json"
        problem = msgspec.json.decode(answer.body, type=Problem)
        assert problem.status == answer.status
        assert problem.detail
        assert await server.state() == before


@given(body=topic | anything)
@one_server
async def test_any_topic_body_gets_a_response_or_problem(server: Served, body: Any) -> None:
    await check_response(server, "POST", "/v1/topics", data=msgspec.json.encode(body), headers=JSON)


@given(body=election | anything)
@one_server
async def test_any_election_body_gets_a_response_or_problem(server: Served, body: Any) -> None:
    await check_response(server, "POST", "/v1/elections", data=msgspec.json.encode(body), headers=JSON)


@given(body=st.binary(max_size=50), path=st.sampled_from(["/v1/topics", "/v1/elections", "/v1/brokers/9/kill"]))
@one_server
async def test_invalid_json_gets_a_problem(server: Served, body: bytes, path: str) -> None:
    await check_response(server, "POST", path, data=body, headers=JSON)


@given(
    path=st.sampled_from(["/v1/partitions", "/v1/topics", "/v1/events", "/v1/brokers", "/v1/cluster"]),
    query=st.lists(
        st.tuples(
            st.sampled_from(
                ["state", "leader", "replica", "topic", "offline", "urp", "limit", "cursor", "after", "kinds", "x"]
            ),
            st.sampled_from(["1", "-1", "true", "online", "orders", "*", "WyJhIiwwXQ", "topic", ""])
            | st.text(max_size=8),
        ),
        max_size=3,
    ),
)
@one_server
async def test_any_query_gets_a_response_or_problem(server: Served, path: str, query: list[tuple[str, str]]) -> None:
    await check_response(server, "GET", path, params=query)


@given(parts=st.lists(st.text(max_size=6) | st.sampled_from(["topics", "brokers", "partitions", "0"]), max_size=4))
@one_server
async def test_any_path_gets_a_response_or_problem(server: Served, parts: list[str]) -> None:
    await check_response(server, "GET", "/v1/" + "/".join(quote(part, safe="") for part in parts))

"""Unexpected exceptions: the log has them under an id, and clients receive that id only."""

import dataclasses
import logging
import re
from typing import Any

import msgspec
import pytest

from kactl import admin
from kactl.admin import mounting, server
from kactl.admin.routes.route_table import ROUTES
from kactl.admin.schema import NoData, Problem
from kactl.runtime.error_id import log_error
from tests.admin.conftest import JSON, Answered, served
from tests.admin.test_access import filled
from tests.admin.test_embedded import mounted, session

pytestmark = pytest.mark.anyio
ID = re.compile(r"\[error ([0-9a-f]{12})\]")


class Secret:
    """A local variable that no traceback may show."""

    def __repr__(self) -> str:
        return "value of a local variable"


async def fails(service: Any, request: Any) -> Any:
    kept = [Secret()]
    raise RuntimeError("text of the exception"[: -len(kept)] + "n")


def logged_ids(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [ID.findall(record.getMessage())[0] for record in caplog.records if record.levelno == logging.ERROR]


def check(answer: Answered, caplog: pytest.LogCaptureFixture, what: str) -> None:
    (error_id,) = logged_ids(caplog)
    problem = msgspec.json.decode(answer.body, type=Problem)
    assert (answer.status, problem.error_name, problem.error_id) == (500, "UNKNOWN_SERVER_ERROR", error_id), what
    assert f"under {error_id}" in problem.detail, what
    assert b"text of the exception" not in answer.body, what
    assert b"Traceback" not in answer.body, what
    assert "text of the exception" in caplog.text, what
    assert "value of a local variable" not in caplog.text, what


async def test_fault_in_each_handler_is_joined_to_its_response_by_an_id(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """S-33. The routes accept any request, so that each handler is reached."""
    plain: dict[str, Any] = {
        "takes_query": NoData, "takes_body": None, "raises_role": None, "needs_reason": None, "partitions": None
    }  # fmt: skip
    broken = [dataclasses.replace(route, handler=fails, version=None, **plain) for route in ROUTES]
    monkeypatch.setattr(mounting, "ROUTES", broken)
    monkeypatch.setattr(server, "openapi_document", lambda prefix: b"{}")  # the document is cached
    ids = set()
    async with served() as running:
        await running.controller.create_topic("none", partitions=78, replication_factor=3)
        for route in broken:
            caplog.clear()
            answer = await running.ask(route.method, filled(route), headers=JSON if route.writes else {})
            check(answer, caplog, f"{route.method} {route.path}")
            ids.add(answer.json()["error_id"])
    assert len(ids) == len(broken)


async def test_expected_error_has_no_id(caplog: pytest.LogCaptureFixture) -> None:
    async with served() as server:
        answer = await server.get("/v1/topics/none")

    assert (answer.status, answer.json()["error_id"]) == (404, "")
    assert logged_ids(caplog) == []


async def test_failure_of_the_program_is_joined_to_the_denial(caplog: pytest.LogCaptureFixture) -> None:
    def raises(*_: Any) -> Any:
        raise RuntimeError("text of the exception")

    async with mounted(admin.Delegated(raises, raises)) as (_, client):
        answer = await client.ask("GET", "/kactl/v1/topics", headers=session("1"))

    (error_id,) = logged_ids(caplog)
    assert answer.status == 403
    assert f"under {error_id}" in answer.json()["detail"]
    assert b"text of the exception" not in answer.body


def test_arguments_precede_the_id(caplog: pytest.LogCaptureFixture) -> None:
    error_id = log_error(logging.getLogger("kactl.test"), ValueError("a bug"), "request of %d failed", 7)

    (record,) = caplog.records
    assert record.getMessage() == f"request of 7 failed [error {error_id}]: a bug"
    assert record.exc_info is not None

"""Log lines of requests: no field of a request can start a new line."""

import logging

import pytest

from tests.admin.conftest import Served

pytestmark = pytest.mark.anyio

FORGED = "done\r\n12:00:00.000 INFO kactl: forged\x1b]0;owned\x07"


async def test_reason_with_control_characters_is_rejected(server: Served) -> None:
    before = await server.state()

    of_body = await server.post("/v1/brokers/1/kill", {"reason": FORGED})
    of_query = await server.ask("DELETE", "/v1/topics/orders", params={"reason": FORGED})

    for answer, place in ((of_body, {"pointer": "/reason"}), (of_query, {"parameter": "reason"})):
        assert answer.status == 400
        (error,) = answer.json()["errors"]
        assert place.items() <= error.items()
        assert "one line of plain text" in error["detail"]
    assert await server.state() == before


async def test_topic_name_cannot_forge_a_log_line(server: Served, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="kactl")

    await server.post("/v1/topics", {"name": FORGED, "partitions": 1})
    await server.ask("DELETE", "/v1/topics/a%0D%0A12:00:00%20forged%1B[2J?reason=a")
    await server.get("/v1/topics/a%0D%0A12:00:00%20forged%1B[2J/partitions/0")

    assert all(message.isprintable() for message in caplog.messages)

"""`kactl status` and `kactl explain` show the reason of a handler that cannot lead."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.failed_handler import SHOWN, failed_handler

from .server import CommandResult, kactl


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("failed")
    with failed_handler(folder) as address:
        yield address


@pytest.mark.parametrize("arguments", [("status",), ("explain", "jobs-0")], ids=" ".join)
def test_command_shows_the_reason_of_a_failed_handler(url: str, arguments: tuple[str, ...]) -> None:
    result: CommandResult = kactl("--server", url, *arguments)

    assert SHOWN in result.out
    assert "\x1b[31m<b" not in result.out + result.err


def test_status_warns_of_a_handler_that_is_called_again(url: str) -> None:
    result = kactl("--server", url, "status")

    assert "failed-handlers" in result.out
    assert "jobs-0 on broker 1: its handler is not ready" in result.out
    assert "failed-handlers: correct the handler" in result.err

"""Two hundred participants behind one address start, and keep their leases when the controller is killed."""

import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.support.certificates import Authority
from tests.support.processes import Process, free_port

pytestmark = pytest.mark.slow

PROGRAM: Final = Path(__file__).with_name("crowd_program.py")
PATIENCE_S: Final = 240.0
FIRSTS: Final = (1, 101)


class Crowd:
    """A controller, and two processes with a hundred participants each."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self._stack = stack
        self._port = str(free_port())
        self.controllers: list[Process] = []
        self.participants: list[Process] = []

    def start_controller(self) -> Process:
        self.controllers.append(self._run("controller"))
        return self.controllers[-1]

    def start_participants(self) -> None:
        self.participants = [self._run("participants", str(first), "100") for first in FIRSTS]

    def _run(self, role: str, *options: str) -> Process:
        output = self.folder / f"{role}-{len(self.controllers)}-{'-'.join(options)}.log"
        command = [sys.executable, str(PROGRAM), role, self._port, str(self.folder), *options]
        return self._stack.enter_context(Process(command, output=output))


@pytest.fixture(params=["plain text", "tls"])
def crowd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Crowd]:
    if request.param == "tls":
        authority = Authority(tmp_path, "ca")
        authority.sign("controller", names="URI:kactl://kactl/controller/1000")
        for first in FIRSTS:
            names = ",".join(f"URI:kactl://kactl/participant/{broker}" for broker in range(first, first + 100))
            authority.sign(f"participants{first}", names=names)
    with ExitStack() as stack:
        yield Crowd(tmp_path, stack)


def test_participants_of_one_address_start_and_outlast_their_controller(crowd: Crowd) -> None:
    """They are started before it: all of them connect at the moment at which it listens."""
    crowd.start_participants()
    first = crowd.start_controller()
    for process in crowd.participants:
        process.wait_for_line("^linked$", PATIENCE_S)

    first.kill()
    second = crowd.start_controller()

    second.wait_for_line("^granted 200$", PATIENCE_S)
    # A lapse is printed as well; retries are logged.
    printed = [re.findall(r"^(?:linked$|Lease.*)", process.text, re.MULTILINE) for process in crowd.participants]
    assert printed == [["linked"], ["linked"]]

"""Results of the JDK and of Kafka's own classes for names of certificates, principals and rights."""

import json
import subprocess
from pathlib import Path
from typing import Any, Final, Self

from tests.support.jars import java_command
from tests.support.processes import HarnessError

_SOURCE: Final = Path(__file__).with_name("SecurityOracle.java")
_HEAP_MB: Final = 128


class SecurityOracle:
    """A JVM that answers until it is closed. It writes its log into a folder."""

    def __init__(self, folder: Path, *, jars: str) -> None:
        self._log = folder / "oracle.log"
        self._command = java_command(str(_SOURCE), [], heap_mb=_HEAP_MB, jars=jars)

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, encoding="utf-8"
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self, about: str, **question: Any) -> list[Any]:
        """Returns the answers to a question."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"about": about, **question}) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise HarnessError(f"the oracle ended:\n{self._log.read_text()[-4000:]}")
        answers: list[Any] = json.loads(answer)
        return answers

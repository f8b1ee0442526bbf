"""Observes which handshakes take turns."""

from collections.abc import Callable

import pytest

from kactl.security.tls.tls_turns import TlsTurns, Turns


def observed_turns(monkeypatch: pytest.MonkeyPatch) -> list[Turns]:
    """Returns a list that grows with each step of a handshake, by the turns that the step takes."""
    taken: list[Turns] = []

    class Observed(Turns):
        def take(self, step: Callable[[], None]) -> bool:
            taken.append(self)
            return super().take(step)

    make = TlsTurns.__init__

    def init(self: TlsTurns) -> None:
        make(self)
        self.handshakes = Observed()

    monkeypatch.setattr(TlsTurns, "__init__", init)
    return taken

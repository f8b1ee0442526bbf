"""Observes which handshakes take turns."""

from collections.abc import Callable

import pytest

from kactl.runtime.handshakes import Handshakes


def observed_turns(monkeypatch: pytest.MonkeyPatch) -> list[Handshakes]:
    """Returns a list that grows with each step of a handshake, by the turns that the step takes."""
    taken: list[Handshakes] = []
    take = Handshakes.take

    def observed(self: Handshakes, step: Callable[[], None]) -> bool:
        taken.append(self)
        return take(self, step)

    monkeypatch.setattr(Handshakes, "take", observed)
    return taken

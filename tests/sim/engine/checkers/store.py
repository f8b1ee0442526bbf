"""Atomic and durable commits: INV-08."""

from typing import Any

from kactl.testing.history import Event
from kactl.testing.violations import Checker, Violation


class Store(Checker):
    """After a crash the content of a store's files is the effect of a prefix of the commits, and no answered commit is
    missing. The store goes on from that prefix."""

    kinds = ("store.commit", "store.answered", "store.reopened")
    invariants = ("INV-08",)

    def __init__(self) -> None:
        self._base: dict[str, dict[str, Any]] = {}  # the effect of all commits up to the last answered one
        self._pending: list[Event] = []
        self._answered: Event | None = None

    def check(self, event: Event) -> Violation | None:
        if event.kind == "store.commit":
            if event.fields["outcome"] == "ok":
                self._pending.append(event)
        elif event.kind == "store.answered":
            self._was_answered(event)
        else:
            return self._was_reopened(event)
        return None

    def _was_answered(self, event: Event) -> None:
        for position, commit in enumerate(self._pending):
            if commit.fields["txn"] == event.fields["txn"]:
                for each in self._pending[: position + 1]:
                    _apply(self._base, each)
                self._pending = self._pending[position + 1 :]
                self._answered = event
                return

    def _was_reopened(self, event: Event) -> Violation | None:
        content = event.fields["content"]
        state = dict(self._base)
        nearest = _differences(state, content)
        for commit in [None, *self._pending]:
            if commit is not None:
                _apply(state, commit)
            different = _differences(state, content)
            if not different:
                self._base, self._pending = state, []
                return None
            nearest = min(nearest, different, key=len)
        shown = ", ".join(nearest[:5])
        text = f"the content is the effect of no prefix of the commits; {len(nearest)} keys differ from one: {shown}"
        return Violation("INV-08", text, event=event, contradicts=self._answered)


def _apply(state: dict[str, dict[str, Any]], commit: Event) -> None:
    for key, _, _, value in commit.fields["ops"]:
        if value is None:
            state.pop(key, None)
        else:
            state[key] = value


def _differences(state: dict[str, dict[str, Any]], content: dict[str, dict[str, Any]]) -> list[str]:
    return sorted(key for key in state.keys() | content.keys() if state.get(key) != content.get(key))

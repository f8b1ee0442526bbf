"""Real store with a script: it records every call, and the next calls of a method can be made to fail.

    store.next("commit", fails(StoreUnavailable("gone")))          nothing is written
    store.next("commit", fails_after(StoreUnavailable("gone")))    it was written, but the response is lost
    store.next("commit", after(leader_writes))                     another writer is faster
    store.next("leaderships", returns(unreadable("t-0")))          the response is changed

Calls without a step go to the real store.
"""

import collections
import dataclasses
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple, cast

import numpy as np

from kactl.model import NO_BROKER, NO_VERSION, Fence
from kactl.stores.base import Committed, Found, Leaderships, Names, Outcome, Store, Write

Real = Callable[..., Awaitable[Any]]
# A step receives the real method and the arguments of the call, and returns or raises its result.
Step = Callable[..., Awaitable[Any]]
# Changes a result; receives the arguments of the call too.
Edit = Callable[..., Any]


class Call(NamedTuple):
    """One call of the store."""

    kind: str
    arguments: tuple[Any, ...]


class WriteCall(NamedTuple):
    """One row given to `commit`, committed or not."""

    name: str
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    expected: int
    recovering: bool = False


class ScriptedStore:
    """Store with a script for its next calls. Used as a `Store` through `promised`."""

    def __init__(self, real: Store) -> None:
        self.real = real
        self.calls: list[Call] = []
        self._steps: dict[str, collections.deque[Step]] = collections.defaultdict(collections.deque)

    @property
    def promised(self) -> Store:
        return cast(Store, self)

    @property
    def trouble(self) -> str:
        return self.real.trouble

    def next(self, kind: str, *steps: Step) -> None:
        """Apply `steps` to the next calls of a method, one step per call."""
        self._steps[kind].extend(steps)

    def forget(self) -> None:
        """Clear the recorded calls."""
        self.calls.clear()

    def forget_script(self) -> None:
        """Remove all remaining steps."""
        self._steps.clear()

    def take_deleted_topics(self) -> frozenset[str]:
        return self.real.take_deleted_topics()

    def __getattr__(self, kind: str) -> Any:
        real = getattr(self.real, kind)

        async def call(*arguments: Any) -> Any:
            self.calls.append(Call(kind, arguments))
            steps = self._steps[kind]
            return await (steps.popleft()(real, *arguments) if steps else real(*arguments))

        return call

    # -- recorded calls ------------------------------------------------------------------------------------------------

    @property
    def left(self) -> list[str]:
        """Returns the methods with unused steps."""
        return [kind for kind, steps in self._steps.items() if steps]

    @property
    def reads(self) -> list[list[str]]:
        """Returns the partitions of each read of leaderships."""
        return [[str(name) for name in call.arguments[0]] for call in self.calls if call.kind == "leaderships"]

    @property
    def commits(self) -> list[list[WriteCall]]:
        """Returns the rows of each commit."""
        return [_recorded_rows(call.arguments[0]) for call in self.calls if call.kind == "commit"]

    @property
    def fences(self) -> list[Fence]:
        """Returns the fence of each commit."""
        return [call.arguments[1] for call in self.calls if call.kind == "commit"]

    @property
    def config_reads(self) -> list[list[str]]:
        """Returns the topics of each read of configurations."""
        return [list(call.arguments[0]) for call in self.calls if call.kind == "topic_configs"]


def _recorded_rows(write: Write) -> list[WriteCall]:
    return [
        WriteCall(
            str(name),
            int(write.leader[at]),
            int(write.leader_epoch[at]),
            tuple(int(broker) for broker in write.isr[:, at] if broker != NO_BROKER),
            int(write.expected[at]),
            bool(write.recovering[at]),
        )
        for at, name in enumerate(write.names)
    ]


# -- steps -------------------------------------------------------------------------------------------------------------


async def really(real: Real, *arguments: Any) -> Any:
    """Call the real method."""
    return await real(*arguments)


def fails(error: Exception) -> Step:
    """Returns a step in which the call fails without an effect."""

    async def step(real: Real, *arguments: Any) -> Any:
        raise error

    return step


def fails_after(error: Exception) -> Step:
    """Returns a step in which the call fails after its effect."""

    async def step(real: Real, *arguments: Any) -> Any:
        await real(*arguments)
        raise error

    return step


def fails_between(error: Exception, *kept: str) -> Step:
    """Returns a step in which a commit fails after writing only the partitions `kept`."""

    async def step(real: Real, write: Write, fence: Fence) -> Any:
        await real(_only(write, _named(write.names, kept)), fence)
        raise error

    return step


def after(other: Callable[[], Awaitable[Any]], *, then: Step = really) -> Step:
    """Returns a step that runs another action first, then the call as by `then`."""

    async def step(real: Real, *arguments: Any) -> Any:
        await other()
        return await then(real, *arguments)

    return step


def returns(*edits: Edit) -> Step:
    """Returns a step that makes the call and changes its result."""

    async def step(real: Real, *arguments: Any) -> Any:
        answer = await real(*arguments)
        for edit in edits:
            answer = edit(answer, *arguments)
        return answer

    return step


def rejects(*names: str) -> Step:
    """Returns a step in which a commit rejects some partitions, which are not written."""

    async def step(real: Real, write: Write, fence: Fence) -> Committed:
        failed = _named(write.names, names)
        answer = Committed(
            np.full(len(write), Outcome.FAILED, np.uint8),
            np.full(len(write), NO_VERSION, np.int32),
        )
        if not failed.all():
            kept = await real(_only(write, ~failed), fence)
            answer.outcome[~failed], answer.version[~failed] = kept.outcome, kept.version
        return answer

    return step


# -- edits -------------------------------------------------------------------------------------------------------------


def with_version(number: int) -> Edit:
    """Returns an edit that sets the version of a commit's committed rows."""

    def edit(answer: Committed, *arguments: Any) -> Committed:
        return Committed(answer.outcome, np.where(answer.committed, np.int32(number), answer.version))

    return edit


def with_status(status: Found, *names: str) -> Edit:
    """Returns an edit that sets the status of some partitions in a read."""

    def edit(answer: Leaderships, asked: Names) -> Leaderships:
        here = _named(asked, names)
        nothing = {
            field.name: np.where(here, np.array(-1).astype(getattr(answer, field.name).dtype),
                                 getattr(answer, field.name))
            for field in dataclasses.fields(answer)
        }  # fmt: skip
        nothing["status"] = np.where(here, np.uint8(status), answer.status)
        nothing["recovering"] = answer.recovering & ~here
        return Leaderships(**nothing)

    return edit


def _named(names: Names, wanted: Iterable[str]) -> Any:
    which = np.array([str(name) in set(wanted) for name in names], np.bool_)
    missing = set(wanted) - {str(name) for name in names}
    assert not missing, f"the script speaks of {sorted(missing)}, the call of {[str(name) for name in names]}"
    return which


def _only(write: Write, which: Any) -> Write:
    columns = {
        field.name: getattr(write, field.name)[..., which]
        for field in dataclasses.fields(write)
        if field.name != "names"
    }
    return Write(names=write.names.take(which), **columns)

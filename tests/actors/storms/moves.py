"""Reassignments and elections, by request and through the store as by older tools."""

import asyncio
from typing import Any, Final

from kactl.actors.system import Controller
from kactl.errors import ErrorCode
from kactl.messages.admin import ElectionKind
from kactl.model import TopicPartition

from .base import Base, targets_text

# Probability of a request during a commit.
MEANWHILE: Final = 0.2


class MoveHappenings(Base):
    """Random reassignments and elections of a storm."""

    async def move(self) -> None:
        held = await self.partitions()
        if not held:
            return
        controller = self.dice.choice(self.controllers)
        names = self.dice.sample(sorted(held), min(len(held), self.dice.randint(1, 3)))
        targets = {name: self.replicas() for name in names}
        if self.dice.random() < 0.1:
            targets[names[0]] = self.dice.choice(((), (1, 1), (-1, 2), held[names[0]].replicas))
        self.note(f"{controller.node_id} is asked to move {targets_text(targets)}")
        self.may_end(targets)
        self.unmoved -= {name.topic for name in names}
        asked = self.number
        self.ask(controller.reassign(targets), lambda answer: self._moved(targets, asked, answer))

    def _moved(self, targets: dict[TopicPartition, tuple[int, ...]], asked: int, answer: Any) -> None:
        if isinstance(answer, list):
            self.note(f"... of {targets_text(targets)} became {[result.error.name for result in answer]}")
            for name, result in zip(targets, answer, strict=True):
                if result.error is ErrorCode.NONE:
                    self.must_end(name, targets[name], asked)
        else:
            self.note(f"... moving {targets_text(targets)}: {answer!r}")

    async def cancel(self) -> None:
        running = [name for name, held in (await self.partitions()).items() if held.is_being_reassigned]
        if running:
            controller, name = self.dice.choice(self.controllers), self.dice.choice(running)
            self.note(f"{controller.node_id} is asked to cancel {name}")
            asked = self.number
            self.ask(controller.cancel([name]), lambda answer: self._cancelled(name, asked, answer))

    def _cancelled(self, name: TopicPartition, asked: int, answer: Any) -> None:
        self.note(f"... cancelling {name}: {answer!r}")
        if isinstance(answer, list) and answer[0].error is ErrorCode.NONE:
            self.must_end(name, answer[0].assignment.replicas, asked)
        elif not isinstance(answer, list) or answer[0].error is ErrorCode.UNKNOWN_SERVER_ERROR:
            self.ends[name] = None

    async def move_stored(self) -> None:
        held = sorted(await self.partitions())
        names = self.dice.sample(held, min(len(held), 2))
        targets = {name: self.replicas() for name in names} | {TopicPartition("nothing", 0): (1, 2)}
        if self.dice.random() < 0.2 and names:
            targets[names[0]] = ()
        if self.store.state.reassignment_request is None:
            self.note(f"the store asks to move {targets_text(targets)}")
            self.may_end(targets)
            self.unmoved -= {name.topic for name in names}
            await self.store.request_reassignment(targets)

    async def elect(self) -> None:
        held = sorted(await self.partitions())
        names = None if self.dice.random() < 0.3 else self.dice.sample(held, min(len(held), 2))
        controller, kind = self.dice.choice(self.controllers), self.dice.choice(list(ElectionKind))
        self.note(f"{controller.node_id} is asked for {kind.value} elections of {names and list(map(str, names))}")
        self.ask(controller.elect(kind, names))

    def asks_meanwhile(self, controller: Controller) -> None:
        """Send small requests to a controller during its commits, at random."""
        real = controller.store.commit

        async def commit(*args: Any, **named: Any) -> Any:
            held = sorted(await self.partitions()) if self.hasty and self.dice.random() < MEANWHILE else []
            if held:
                kind, name = self.dice.choice(list(ElectionKind)), self.dice.choice(held)
                self.note(f"{controller.node_id} is asked meanwhile for {kind.value} election of {name}")
                self.ask(controller.elect(kind, [name]))
                await asyncio.sleep(0)
            return await real(*args, **named)

        controller.store.commit = commit  # type: ignore[method-assign]

    async def elect_stored(self) -> None:
        held = sorted(await self.partitions())
        if held and self.store.state.preferred_election_request is None:
            names = [*self.dice.sample(held, min(len(held), 2)), TopicPartition("nothing", 0)]
            self.note(f"the store asks for elections of {list(map(str, names))}")
            await self.store.request_preferred_election(names)

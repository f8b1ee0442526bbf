"""Hand-written histories."""

from collections.abc import Sequence
from typing import Any

from kactl.testing.history import Event, History
from kactl.testing.violations import Checker, Violation
from tests.sim.engine.checkers.events import validate

A, B = "controller 100", "controller 101"
T1 = "0000000000000000000000000000000a"
T2 = "0000000000000000000000000000000b"
NO_ID = "0" * 32


class Story:
    """A history, written event by event. Every event has the documented fields.

    Args:
        checker: reads the events as they are written.

    Attributes:
        violations: the findings of the checker.
    """

    def __init__(self, checker: Checker) -> None:
        self.now_ms = 0.0
        self.history = History(lambda: self.now_ms)
        self.checker = checker
        self.violations: list[Violation] = []
        self._txn = 0
        self._versions: dict[str, int] = {}
        self.history.subscribe(checker.kinds, self._check)

    def _check(self, event: Event) -> None:
        violation = self.checker.check(event)
        if violation is not None:
            self.violations.append(violation)

    @property
    def found(self) -> list[str]:
        """The numbers of the violations, in order."""
        return [violation.invariant for violation in self.violations]

    def record(self, kind: str, node: str = "", **fields: Any) -> Event:
        event = self.history.record(kind, node=node, **fields)
        validate(event)
        return event

    # -- store ---------------------------------------------------------------------------------------------------------

    def commit(
        self,
        writes: dict[str, dict[str, Any] | None],
        *,
        client: str = A,
        operation: str = "commit",
        fence: int | None = None,
        outcome: str = "ok",
        sent: int | None = None,
        old: int | None = None,
        conflicts: Sequence[str] = (),
    ) -> Event:
        """Write entries. Versions follow from the entries before.

        Args:
            sent: None for now.
            old: version that the write names; None for the stored one.
            conflicts: keys that are not written because of their version.
        """
        ops = []
        for key, value in writes.items() if outcome == "ok" else ():
            version = self._versions.get(key, -1) if old is None else old
            ops.append((key, version, -1 if value is None else version + 1, value))
            self._versions[key] = ops[-1][2]
        self._txn += 1
        return self.record(
            "store.commit",
            node="store",
            txn=self._txn,
            client=client,
            operation=operation,
            sent=len(self.history.events) if sent is None else sent,
            fence=fence,
            ops=ops,
            conflicts=list(conflicts),
            outcome=outcome,
        )

    def contest(self, epoch: int, client: str = A) -> None:
        number = int(client.split()[1])
        writes: dict[str, Any] = {"epoch": {"epoch": epoch}, "controller": {"id": number, "epoch": epoch}}
        self.commit(writes, client=client, operation="contest")

    def elected(self, epoch: int, client: str = A, incarnation: int = 1) -> None:
        """Elect an instance: the store has its epoch, and it knows."""
        self.contest(epoch, client)
        self.knows(epoch, client, incarnation)

    def knows(self, epoch: int, client: str = A, incarnation: int = 1) -> None:
        number = int(client.split()[1])
        self.record("ctl.elected", client, controller=number, incarnation=incarnation, controller_epoch=epoch)

    def resigned(self, epoch: int, client: str = A, handler: str = "") -> None:
        self.record(
            "ctl.resigned",
            client,
            controller=int(client.split()[1]),
            incarnation=1,
            controller_epoch=epoch,
            cause="",
            handler=handler,
        )

    def brokers(self, brokers: dict[int, int], leaving: list[int] | None = None, *, client: str = A) -> None:
        """Record the brokers as an instance knows them."""
        self.record(
            "ctl.brokers",
            client,
            controller_epoch=1,
            brokers=list(brokers.items()),
            shutting_down=leaving or [],
        )

    def topic(
        self,
        partitions: dict[int, Any],
        *,
        name: str = "t1",
        topic_id: str = T1,
        fence: int | None = None,
        operation: str = "write_assignment",
    ) -> None:
        """Write the assignment of a topic; a partition is a list of replicas, or replicas, adding and removing."""
        value = {
            str(partition): list(each) if isinstance(each, tuple) else [each, [], []]
            for partition, each in partitions.items()
        }
        self.commit({f"topics/{name}": {"id": topic_id, "partitions": value}}, operation=operation, fence=fence)

    def lead(
        self,
        leader: int,
        epoch: int,
        isr: list[int],
        *,
        recovering: bool = False,
        key: str = "leadership/t1/0",
        fence: int | None = 1,
        **options: Any,
    ) -> None:
        value = {"leader": leader, "leader_epoch": epoch, "isr": isr, "recovering": recovering, "controller_epoch": 1}
        self.commit({key: value}, fence=fence, **options)

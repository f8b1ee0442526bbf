"""Records when participants act as leaders: from the call of `became_leader` or `lead` to the end of the leadership or
the lease.

A lease ends at a time of its node's clock, which may be slow or fast. Whether it has ended is therefore looked up on
that clock when another leadership begins. The deadline of each lease is computed anew from its renewals, and compared
with the one that the participant keeps.
"""

import asyncio
import math
from collections.abc import Callable, Iterable
from typing import Any, Final, cast

from kactl.decide.messages.control import LeaderAndIsr, Request
from kactl.model import TopicPartition
from kactl.participant.incarnation import Incarnation
from kactl.participant.leases.leader import Leader
from kactl.participant.leases.pacemaker import Pacemaker
from kactl.testing.clock import LoopClock
from kactl.testing.history import History
from kactl.testing.loop import SimLoop
from kactl.testing.nodes import NODE, Node, on

from .application import Application
from .entries import StateEntry, state_entries
from .handlers import HandlerApplication

# Attributes of an incarnation that are wrapped.
WRAPPED: Final = ("lease_ended", "leaderships", "run")
NS_PER_MS: Final = 1_000_000
# How far the rates of two clocks may differ, in percent, and how long a new leader waits if a session that only
# witnesses has vanished.
DRIFT_PERCENT: Final = 10
HANDOVER_SHARE: Final = 2 / 3


class LeaseClocks:
    """The leases of all participants of a run."""

    def __init__(self) -> None:
        self._valid: dict[tuple[str, int], Callable[[], bool]] = {}

    def add(self, node: str, life: int, is_valid: Callable[[], bool]) -> None:
        self._valid[node, life] = is_valid

    def remove(self, node: str, life: int) -> None:
        self._valid.pop((node, life), None)

    def valid(self) -> list[tuple[str, int]]:
        """Returns the nodes and broker epochs with a valid lease, each by its node's clock."""
        return [key for key, is_valid in self._valid.items() if is_valid()]


class LeaseRecorder:
    """Records `lease.*` of one registration."""

    def __init__(
        self,
        history: History,
        clocks: LeaseClocks,
        incarnation: Incarnation,
        application: Application | HandlerApplication,
    ) -> None:
        self._history = history
        self._clocks = clocks
        self._incarnation = incarnation
        self._application = application
        self._leads: dict[TopicPartition, None] = {}
        self._lapsed: dict[TopicPartition, None] = {}  # led until the lease lapsed, and not ended since
        self._is_lapsing = False
        self._rows: dict[TopicPartition, tuple[bytes, int]] = {}  # of the request in progress
        self._orders: dict[TopicPartition, StateEntry] = {}  # of the request whose orders are being submitted
        self._sender_epoch = 0
        self._deadline_ns: int | None = None
        self._margin_ms = 0.0
        application.on_lead = self.leads
        self._wrap()

    def _wrap(self) -> None:
        incarnation = self._incarnation
        ended, end, run = incarnation.lease_ended, incarnation.leaderships.end, incarnation.run

        def lease_ended() -> None:
            self._is_lapsing = True
            self._lapses()
            ended()
            self._is_lapsing = False

        def end_some(names: Iterable[TopicPartition]) -> None:
            names = list(names)
            end(names)
            self._ended(names)

        async def running(pacemaker: Pacemaker) -> None:
            self._follow(pacemaker)
            await run(pacemaker)

        incarnation.lease_ended = lease_ended  # type: ignore[method-assign]
        incarnation.run = running  # type: ignore[method-assign]
        if isinstance(self._application, Application):
            incarnation.leaderships.end = end_some  # type: ignore[method-assign]
        elif (hosting := incarnation._hosting) is not None:
            self._application.on_check = self._checked
            lead, leads, began = type(hosting).lead, type(hosting).leads, type(hosting).began

            def ordering(request: LeaderAndIsr, *arguments: Any, **options: Any) -> None:
                self._orders = {entry.name: entry for entry in state_entries(request.states)}
                self._sender_epoch = request.controller_epoch
                lead(hosting, request, *arguments, **options)
                self._orders = {}

            def leading(leader: Leader, is_leading: bool) -> None:
                leads(hosting, leader, is_leading)
                if is_leading and leader.partition in self._leads:
                    self._keeps(leader)
                elif not is_leading and not self._is_lapsing:
                    self._ended([leader.partition], leader)

            def beginning(name: TopicPartition, order: Any) -> None:
                began(hosting, name, order)
                self._ended([name])

            hosting.lead = ordering  # type: ignore[method-assign]
            hosting.leads = leading  # type: ignore[method-assign]
            hosting.began = beginning  # type: ignore[method-assign]

    # -- renewals ------------------------------------------------------------------------------------------------------

    def _follow(self, pacemaker: Pacemaker) -> None:
        """Compute the deadline of the lease from the renewals of its session."""
        session = pacemaker._session
        timeout_ms, bound, clock = session.timeout_ms, session.bound, LoopClock()
        counted_ms = timeout_ms if bound.kind == "counted" else math.floor(timeout_ms * HANDOVER_SHARE)
        length_ns = counted_ms * NS_PER_MS * (100 if bound.same_clock else 100 - DRIFT_PERCENT) // 100
        self._margin_ms = min(max(100.0, timeout_ms // 10), timeout_ms // 4)
        if isinstance(self._application, HandlerApplication):
            self._application.margin_ms = self._margin_ms
        renew = session.renew

        async def renewing(sent_ns: int) -> None:
            began_ns = clock.lease_ns()
            await renew(sent_ns)
            if self._deadline_ns is not None and clock.lease_ns() >= self._deadline_ns:
                self._record("lease.late_answer")
            deadline_ns = began_ns + length_ns - int(self._margin_ms * NS_PER_MS)
            self._deadline_ns = deadline_ns if self._deadline_ns is None else max(self._deadline_ns, deadline_ns)

        session.renew = renewing  # type: ignore[method-assign]

    def _checked(self, leader: Leader) -> None:
        """A leader has found its lease valid."""
        if self._deadline_ns is not None and LoopClock().lease_ns() >= self._deadline_ns:
            self._record("lease.late", what=f"check of {leader.partition}")

    # -- leaderships ---------------------------------------------------------------------------------------------------

    def carries(self, request: Request | None) -> None:
        """Note the request in progress; None if there is none."""
        entries = state_entries(request.states) if isinstance(request, LeaderAndIsr) else []
        self._rows = {entry.name: (entry.topic_id, entry.controller_epoch) for entry in entries}

    def leads(self, name: TopicPartition, leader_epoch: int, present_epoch: int) -> None:
        """The application acts as the leader from now on."""
        incarnation, node = self._incarnation, NODE.get()
        if node is None:
            return
        hosted = incarnation.hosted.view(name)
        known = (incarnation.hosted.topic_id_of(name), 0 if hosted is None else hosted.controller_epoch)
        topic_id, controller_epoch = self._rows.get(name, known)
        life = incarnation.epoch
        others = [other for other in self._clocks.valid() if other != (node.name, life)]
        if not self._leads:
            self._clocks.add(node.name, life, lambda: self._is_valid(node))
        self._leads[name] = None
        self._lapsed.pop(name, None)
        self._history.record(
            "lease.begin", broker=incarnation.broker, life=life, topic=name.topic, topic_id=topic_id.hex(),
            partition=name.partition, controller_epoch=controller_epoch, leader_epoch=leader_epoch,
            present_epoch=present_epoch, valid=others, margin_ms=self._margin_ms,
        )  # fmt: skip

    def _keeps(self, leader: Leader) -> None:
        """A leadership goes on under another leader epoch."""
        name, token = leader.partition, leader.token
        self._application.roles[name] = (self._incarnation.broker, leader.leader_epoch)
        self._record(
            "lease.keep", topic=name.topic, topic_id=token.topic_id.hex(), partition=name.partition,
            leader_epoch=token.leader_epoch, present_epoch=leader.leader_epoch,
        )  # fmt: skip

    def _is_valid(self, node: Node) -> bool:
        with on(node):
            return LoopClock().lease_ns() < self._incarnation._lease.ends_ns

    def _ended(self, names: Iterable[TopicPartition], leader: Leader | None = None) -> None:
        for name in names:
            if name in self._leads or name in self._lapsed:
                self._leads.pop(name, None)
                self._lapsed.pop(name, None)
                ordered, order = {}, self._orders.get(name)
                if order is not None and leader is not None and order.topic_id == leader.token.topic_id:
                    ordered = {"ordered": order.leader_epoch, "controller_epoch": self._sender_epoch}
                self._record(
                    "lease.end", topic=name.topic, partition=name.partition, late_ms=self._late_ms(), **ordered
                )
                self._expect_silence([name])

    def _lapses(self) -> None:
        if self._leads:
            incarnation, node = self._incarnation, NODE.get()
            names = list(self._leads)
            self._lapsed.update(self._leads)
            self._leads.clear()
            if node is not None:
                self._clocks.remove(node.name, incarnation.epoch)
            self._record("lease.lapse", late_ms=self._late_ms())
            if self._deadline_ns is not None and incarnation._lease.ends_ns > self._deadline_ns:
                self._record("lease.late", what="deadline of the lease")
            self._expect_silence(names)

    def _late_ms(self) -> float:
        """Returns how long ago the lease ended; 0 if it is valid."""
        return max(0, LoopClock().lease_ns() - self._incarnation._lease.ends_ns) / NS_PER_MS

    def _expect_silence(self, names: Iterable[TopicPartition]) -> None:
        """Look after the margin whether a call of `lead` runs. Nothing is known of one that ignores its cancellation
        at first, and of a process that did not run at full speed meanwhile: one that was slow first carries out what
        has been waiting since then."""
        application, node = self._application, NODE.get()
        if not isinstance(application, HandlerApplication) or node is None:
            return
        loop = cast(SimLoop, asyncio.get_running_loop())
        began_s = loop.now_s
        for name in names:
            number, pauses = application.leading.get(name), node.pauses
            if number is None or node.slow_ms or name in application.hanging:
                continue

            def look(name: TopicPartition = name, number: int = number, pauses: int = pauses) -> None:
                is_undisturbed = node.pauses == pauses and not node.slow_ms and node.busy_until_s <= began_s
                if application.leading.get(name) == number and is_undisturbed:
                    self._record("lease.late", what=f"lead of {name}")

            loop.call_later(self._margin_ms / 1000, look)

    def _record(self, kind: str, **fields: Any) -> None:
        self._history.record(kind, broker=self._incarnation.broker, life=self._incarnation.epoch, **fields)

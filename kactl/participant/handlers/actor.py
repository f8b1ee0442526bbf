"""The actor of one hosted partition: carries out its orders, one call of its handler at a time.

The newest order wins: it cancels the call in progress and replaces an order that waits. Its own first call begins after
the cancelled one has ended. An order to lead that only changes the ISR cancels nothing: the leadership goes on. A call
that does not end within the margin after its cancellation is STUCK, and the partition gets no other call; no other
partition is affected. `HandlerState` shows the states.

The actor has the state and the leadership. `OrderQueue` has the orders that wait, `HandlerCalls` makes the calls, and
`HandlerFailures` has the pauses after failures and the reports to the controller.
"""

import logging
from collections.abc import Callable
from typing import Final

import anyio

from kactl.model import ReplicaStatus, TopicPartition
from kactl.model.errors import ErrorCode, LeadershipLost, NotReady
from kactl.participant.leases.leader import Leader
from kactl.runtime.logs import logger

from .environment import Environment
from .handler import Follower, PartitionHandler
from .handler_calls import BUSY_MS, Call, CallStuck, HandlerCalls
from .handler_failures import BackOff, HandlerFailures
from .order_queue import OrderQueue
from .orders import Follow, HandlerState, Lead, Order, Stop
from .phase import InnerCancellation
from .waiting import Signal

log = logger(__name__)

# A handler that fails again and again is shown as running once a call has lasted for this long.
RUNNING_MS: Final = 1_000.0


class PartitionActor:
    """Carries out the orders for one hosted partition.

    Attributes:
        leader: the leadership in progress, from the call of `prepare` on.
        handler: None before the first order, and after the replica was deleted.
        orders: those that wait, and the one in progress.
    """

    def __init__(self, name: TopicPartition, environment: Environment) -> None:
        self.name = name
        self.handler: PartitionHandler | None = None
        self.state = HandlerState.IDLE
        self.leader: Leader | None = None
        self._environment = environment
        self.orders = OrderQueue()
        self._running = False
        self._retries = False  # the order in progress is carried out again after a pause
        self._signal = Signal(environment.clock)
        self._calls = HandlerCalls(name, environment, self._signal, self._enter_ending)
        self._cancelled_state = HandlerState.IDLE  # in which the last call was cancelled
        self._failures = HandlerFailures(name, environment)
        self._resigned: NotReady | None = None

    # -- called in the event loop, by the participant

    @property
    def is_new(self) -> bool:
        is_idle = self.handler is None and self.state is HandlerState.IDLE
        return is_idle and self.orders.undeleted is None and not self._failures.has_failed

    @property
    def is_over(self) -> bool:
        """Whether no call is in progress, and none follows without another order."""
        is_pausing = self.state is HandlerState.BACKING_OFF and self.orders.newest is None
        return not self._running or (is_pausing and not self.orders.has_deletion)

    def submit(self, order: Order) -> None:
        """Queue an order in place of an earlier one that waits, and cancel the call in progress."""
        if self.state is HandlerState.STUCK:
            self._refuse(order)
            if self.orders.undeleted is not None:
                self.repeat_report()  # the controller has forgotten it with the earlier replica
            return
        if isinstance(order, Lead) and self._goes_on(order):
            self._environment.replaced(order)
            return
        replaced = self.orders.put(order)
        if replaced is not None:
            replaced.ticket.finish()
            self._environment.replaced(replaced)
        self._end_leader()
        self._signal.set()
        self._start()

    def _goes_on(self, order: Lead) -> bool:
        """Let the leadership in progress go on under a newer order, if nothing has ended it. Returns whether it does.

        The calls of the handler, the `Leader` and its token stay.
        """
        current, is_prepared = self.orders.current, self.state is not HandlerState.PREPARING
        leads = self.leader is not None or self.state in (HandlerState.PREPARING, HandlerState.WAITING) or self._retries
        if not (order.continues and leads and self.orders.newest is None and isinstance(current, Lead)):
            return False
        current.ticket.finish()
        token = order.token if order.raises else None
        current.update(leader_epoch=order.leader_epoch, isr=order.isr, token=token)
        current.ticket, current.held = order.ticket, order.held
        if is_prepared:
            order.ticket.finish()
        if self.leader is not None:
            self._environment.leads(self.leader, True)
        self._signal.set()
        return True

    def isr_changed(self, leader_epoch: int, isr: tuple[int, ...]) -> None:
        """Note an ISR that was committed for the leadership in progress."""
        current = self.orders.current
        if isinstance(current, Lead) and current.leader_epoch == leader_epoch:
            current.update(leader_epoch=leader_epoch, isr=isr)

    def _start(self) -> None:
        """Start the task that carries out orders, unless it runs."""
        if not self._running:
            self._running = True
            self._environment.start(self._run)

    def lease_began(self) -> None:
        """Continue a leadership that waits for a lease."""
        self._signal.set()

    def release(self, leader_epoch: int) -> None:
        """Continue a leadership that waits for its release."""
        for order in (self.orders.current, self.orders.newest):
            if isinstance(order, Lead) and order.leader_epoch == leader_epoch:
                order.held = False
        self._signal.set()

    def lease_ended(self) -> None:
        """End the leadership at once, before anything else runs."""
        leader = self._end_leader()
        if leader is None or self.handler is None or self.state is not HandlerState.LEADING:
            return
        try:
            self.handler.lease_lost(leader)
        except Exception as error:
            text = "lease_lost of the handler of %s has failed; its tasks are cancelled"
            self._environment.failure_log.add(logging.ERROR, error, text, self.name)
        self._calls.cancel()
        self._signal.set()

    def reset(self) -> None:
        """Try again now, without the rest of a pause. A replica whose call is stuck stays so."""
        self._failures.end_pause()
        self._signal.set()

    def begin_life(self) -> None:
        """Forget failures under an earlier registration."""
        self._failures.forget()

    def repeat_report(self) -> None:
        """Report a failure that lasts again, to a controller that did not receive the report."""
        self._failures.repeat_report()

    def _end_leader(self) -> Leader | None:
        leader, self.leader = self.leader, None
        if leader is not None:
            leader._end()
            self._environment.leads(leader, False)
        return leader

    # -- the actor's task

    async def _run(self) -> None:
        has_failed = False
        try:
            await self._calls.wait()  # one may be left after an error of this actor
            while (order := await self._next()) is not None:
                if not order.begun:
                    order.begun = True
                    self._environment.began(self.name, order)
                try:
                    await self._carry_out(order)
                except CallStuck:
                    await self._wait_for_stuck(order)
                order.ticket.finish()
                if self.state is not HandlerState.FOLLOWING:
                    self.state = HandlerState.IDLE
        except Exception as error:
            # A bug here must not end the participant, and with it all other partitions.
            log.exception("the actor of %s has failed", self.name)
            has_failed = True
            try:
                self._give_up(self.orders.current, error)
            except Exception:
                log.exception("the error of the actor of %s could not be reported", self.name)
        finally:
            self._running, self.orders.current = False, None
        if has_failed:
            self._start()
        else:
            self._environment.is_idle(self)

    async def _next(self) -> Order | None:
        """Take the next order, as soon as the back-off allows it. Returns None if there is none."""
        if self._failures.back_off is not None:
            await self._pause(self._failures.back_off)
        return self.orders.take()

    async def _pause(self, back_off: BackOff) -> None:
        """Wait for the end of a back-off, or for a stop or a deletion.

        The controller stops a replica because of the failure itself, so a stop does not end the back-off. A deletion
        does when it has succeeded: it would otherwise be repeated without a pause if it fails, because the controller
        repeats it when the replica is ready.
        """
        self.state = HandlerState.BACKING_OFF
        orders = self.orders

        def is_over() -> bool:
            # A handler that could not be made, or whose deletion has failed, cannot follow either.
            can_follow = self.handler is not None and orders.undeleted is None
            ends = back_off.is_ended_by(orders.newest) and (can_follow or isinstance(orders.newest, Stop))
            return ends or back_off.left_ms <= 0

        def stops() -> bool:
            return orders.has_deletion or isinstance(orders.newest, Stop)

        await self._signal.wait_for(lambda: is_over() or stops(), back_off.left_ms)
        if is_over() or not stops():
            self.state = HandlerState.IDLE
            self._failures.end_back_off()

    async def _carry_out(self, order: Order) -> None:
        if isinstance(order, Stop):
            if order.deleted:
                self.orders.begin_deletion(order)
            elif not self._calls_stop(order):
                if order.ends_life:
                    self.orders.undeleted = None  # as when the process ends
                return
        while await self._try(order) and not self._is_superseded():
            pass

    async def _try(self, order: Order) -> bool:
        """Carry out an order once. Returns whether to do so again, under the same token: the lease has lapsed and
        there is another one, or a pause after a failure is over."""
        if self.handler is None:
            try:
                self.handler = self._environment.make(self.name)
            except Exception as error:
                return await self._fails(order, "making", error)
        match order:
            case Lead():
                return await self._lead(order, self.handler)
            case Follow():
                return await self._follow(order, self.handler)
            case Stop():
                await self._stop(order, self.handler)
                return False

    async def _lead(self, order: Lead, handler: PartitionHandler) -> bool:
        """Lead until a newer order, a failure, or the end of the lease. Returns whether to lead again; see `_try`."""
        environment = self._environment
        leader = order.leader = Leader(
            self.name,
            order.token,
            isr=order.isr,
            leader_epoch=order.leader_epoch,
            reason=order.reason,
            now_ns=environment.clock.lease_ns,
            resign=self._resign,
            report=environment.follower_at,
        )
        self.state = HandlerState.PREPARING
        # A method that is not overridden needs no task: a failure concerns many partitions at once.
        is_needed = type(handler).prepare is not PartitionHandler.prepare
        if is_needed:
            error = await self._transition(order, lambda: handler.prepare(leader), "prepare", self._is_superseded)
            if self._is_superseded():
                return False
            if error is not None:
                return await self._fails(order, "prepare", error)
        order.ticket.finish()
        self.state = HandlerState.WAITING
        if is_needed and order.held:
            environment.prepared(order)
        await self._wait_for_lease(order)
        if self._is_superseded():
            return False
        self.state, self.leader, self._resigned = HandlerState.LEADING, leader, None

        async def lead() -> None:
            environment.watchdog.begin()
            try:
                async with anyio.create_task_group() as tasks:
                    if leader is not self.leader:
                        return  # it was lost before this task began
                    leader._begin(environment.lease, tasks)
                    environment.leads(leader, True)
                    await handler.lead(leader)
                    # A private attribute: those that it started may be all that the handler needs.
                    if type(handler).lead is not PartitionHandler.lead and not getattr(tasks, "_tasks", True):
                        log.warning(
                            "lead of the handler of %s has returned under token %s: the partition stays led, and no "
                            "code runs for it until another replica leads; to end the leadership, call leader.resign()",
                            self.name,
                            leader.token,
                        )
                    await anyio.sleep_forever()
            finally:
                environment.watchdog.end()

        again = await self._body(order, lead, "lead", lambda: self.leader is not leader)
        if again and self._resigned is not None:
            self._fail(order, "lead", self._resigned)
            return False
        if again:
            self.state = HandlerState.WAITING
            await self._wait_for_lease(order)
        return again

    def _resign(self, leader: Leader, reason: str, hold_ms: int) -> None:
        if leader is self.leader:
            self._resigned = NotReady(reason=reason or "it has resigned", hold_ms=hold_ms)
            self._end_leader()
            self._signal.set()

    async def _wait_for_lease(self, order: Lead) -> None:
        """Wait for a lease, and for the release of the leadership."""
        clock, environment = self._environment.clock, self._environment
        await self._signal.wait(
            lambda: self._is_superseded() or (not order.held and clock.lease_ns() < environment.lease.ends_ns)
        )

    async def _follow(self, order: Follow, handler: PartitionHandler) -> bool:
        self.state = HandlerState.FOLLOWING
        order.ticket.finish()
        if type(handler).follow is PartitionHandler.follow:
            self._failures.end_retry(order.leader_epoch)
            return False  # no task is needed: there can be many
        follower = Follower(
            self.name,
            leader=order.leader,
            leader_epoch=order.leader_epoch,
            leader_endpoint=order.endpoint,
            report=lambda position, caught_up: self._environment.follows(follower, position, caught_up),
        )

        async def follow() -> None:
            try:
                if not self._is_superseded():
                    await handler.follow(follower)
                    await anyio.sleep_forever()
            finally:
                follower._end()

        return await self._body(order, follow, "follow", lambda: False)

    def _calls_stop(self, order: Stop) -> bool:
        """Whether the handler is called for a stop: there is one, and it does not wait for its deletion."""
        return not order.silent and self.handler is not None and (order.ends_life or self.orders.undeleted is None)

    async def _stop(self, order: Stop, handler: PartitionHandler) -> None:
        self.state = HandlerState.STOPPING
        deleted, stopped = self.orders.undeleted is not None, True

        def is_cancelled() -> bool:
            # A deletion is not cancelled for an order that concerns the next topic of the name.
            return not deleted and self._is_superseded()

        if type(handler).stop is not PartitionHandler.stop:
            error = await self._transition(order, lambda: handler.stop(deleted=deleted), "stop", is_cancelled)
            stopped = error is None and not is_cancelled()
            if error is not None and not is_cancelled():
                self._fail(order, "stop", error)
        if stopped or order.ends_life:
            self.orders.undeleted = None
        if stopped and deleted:
            # The next order is for another replica.
            self.handler = None
            self._failures.forget()
            self._failures.end_back_off()

    def _is_superseded(self) -> bool:
        return self.orders.newest is not None

    # -- calls of the handler

    async def _transition(
        self, order: Order, call: Call, what: str, is_cancelled: Callable[[], bool]
    ) -> Exception | None:
        """Make a bounded call. Returns what it raised; None if it succeeded, or a newer order has cancelled it."""
        is_busy = False

        def report_busy() -> None:
            # A busy replica counts as ready, which one that has failed is not while it stops.
            nonlocal is_busy
            is_busy = self._failures.back_off is None
            if is_busy:
                self._failures.report(order.leader_epoch, ReplicaStatus.BUSY, f"{what} is in progress", age_ms=BUSY_MS)

        error = await self._calls.bounded(call, what, is_cancelled, report_busy)
        if is_busy and (error is None or is_cancelled()):
            self._failures.report(order.leader_epoch, ReplicaStatus.READY)
        if error is not None and is_cancelled():
            self._log_late_failure(what, error)
            return None
        return error

    async def _body(self, order: Order, call: Call, what: str, is_lost: Callable[[], bool]) -> bool:
        """Make a call without a time limit, which does not return, until it raises, a newer order arrives, or `is_lost`
        is true.

        Returns:
            whether to make it again.
        """
        phase = self._calls.begin(call, what)
        began_ms = self._environment.clock.monotonic_ms()

        def is_over() -> bool:
            return phase.ended or self._is_superseded() or is_lost()

        if self._failures.has_failed and not await self._signal.wait_for(is_over, RUNNING_MS):
            self._failures.has_begun(order.leader_epoch, what)
        await self._signal.wait(is_over)
        lost = is_lost()
        self._end_leader()
        self._failures.has_run(self._environment.clock.monotonic_ms() - began_ms)
        await self._calls.end(phase)
        if self._is_superseded() or lost:
            if phase.error is not None:
                self._log_late_failure(what, phase.error)
            return lost and not self._is_superseded()
        # A task of a leader that was cancelled by something else cancels the call, and leaves no error.
        return await self._fails(order, what, phase.error or InnerCancellation())

    def _enter_ending(self) -> None:
        """Enter ENDING, since a call is cancelled."""
        self._cancelled_state, self.state = self.state, HandlerState.ENDING

    # -- failures

    def _log_late_failure(self, what: str, error: Exception) -> None:
        if isinstance(error, LeadershipLost):
            return  # `check` has ended the call before its cancellation did
        text = "%s of the handler of %s has failed while it ended"
        self._environment.failure_log.add(logging.WARNING, error, text, what, self.name)

    async def _wait_for_stuck(self, order: Order) -> None:
        """Refuse all orders until a call has ended that ignores its cancellation."""
        self.state = HandlerState.STUCK
        margin_ms = self._environment.margin_ms
        detail = (
            f"the call was cancelled while {self._cancelled_state.value}, and has not ended {margin_ms:.0f} ms later"
        )
        log.error("the handler of %s is stuck: %s", self.name, detail)
        self._refuse(order)
        self._refuse_pending()
        self._failures.report(order.leader_epoch, ReplicaStatus.STUCK, detail)
        await self._calls.wait()
        self.state = HandlerState.IDLE
        log.warning("the stuck call of the handler of %s has ended; it is called again", self.name)
        self._failures.stuck_call_ended(order.leader_epoch)

    async def _fails(self, order: Order, what: str, error: Exception) -> bool:
        """Note a failure. Returns whether to carry out the order again.

        The leadership stays here meanwhile, and another replica is elected after some failures in a row. The controller
        repeats a deletion that has failed.
        """
        if isinstance(order, Stop) or not self._failures.tries_again(error):
            self._fail(order, what, error)
            return False
        order.ticket.finish()
        pause = self._failures.add_retry(order.leader_epoch, what, error)
        self.state, self._retries = HandlerState.BACKING_OFF, True
        await self._signal.wait_for(lambda: self._is_superseded() or pause.left_ms <= 0, pause.left_ms)
        self._retries = False
        if self._is_superseded():
            self._failures.end_retry(order.leader_epoch)
        return not self._is_superseded()

    def _fail(self, order: Order, what: str, error: Exception) -> None:
        """Refuse an order that has failed, and begin to back off."""
        self._refuse(order)
        self._failures.add(order.leader_epoch, what, error)

    def _give_up(self, order: Order | None, error: Exception) -> None:
        """Refuse all orders after an error of the actor itself."""
        self._end_leader()
        self._calls.cancel()
        self._refuse_pending()
        self.state, self._retries = HandlerState.IDLE, False
        if order is not None:
            self._fail(order, "internal error", error)

    def _refuse(self, order: Order) -> None:
        order.ticket.finish(ErrorCode.KAFKA_STORAGE_ERROR)
        had_begun, order.begun = order.begun, True
        self._environment.failed(self.name, order, had_begun=had_begun)

    def _refuse_pending(self) -> None:
        for order in self.orders.clear():
            self._refuse(order)

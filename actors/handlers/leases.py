"""Releases of new leaders, after the leases of earlier leaders have ended.

A holder is released when the controller knows that its leases have ended:

    the participant has reported the end of the leadership             at once
    its registration has ended, and the store counts renewals          at once
    its registration has ended, and the store only witnesses renewals  after its handover wait
    it has reported that it leaves                                     at once
    the same participant has registered again                          at once
    it was evicted, since it had not reported for a session timeout    after that timeout, or its handover wait

A controller that has just taken over knows no holders. Until every participant has reported that the complete state is
carried out, or is known to have ended, new leaders wait for all of them. `kactl.decide.state.holds` has the columns;
docs/promises.md explains why no two leases overlap.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from kactl.actors.priority_inbox import Timers
from kactl.config.topic import is_leased, standbys
from kactl.decide.messages.events import BrokerChange, Event, TopicDeletion
from kactl.decide.messages.leases import HolderExpiry, HolderSilence, LeaderEpochs, ReportLeaderships
from kactl.decide.messages.log import BrokerEvent
from kactl.decide.messages.sessions import is_next_life
from kactl.decide.outbound.releases import lease_releases, state_sent
from kactl.decide.outbound.request_columns import different
from kactl.decide.state.holds import VANISHED_BEFORE, HoldColumns, past_life
from kactl.decide.state.rows import Ints, RowNumbers, common
from kactl.decide.state.table import NO_ROW
from kactl.model import NO_BROKER, ZERO_ID, Broker
from kactl.model.errors import BrokerNotAvailable, StaleBrokerEpoch, StoreError
from kactl.runtime.logs import logger

from .base import ControllerContext, Handler, Handlers
from .ownership import Ownership

log = logger(__name__)

# Session timeout of a registration that does not contain its own.
TIMEOUT_MS: Final = 18_000
# Configurations in one call of the store.
TOPICS_AT_ONCE: Final = 500


class _Silence(NamedTuple):
    """What a participant held when its timer was set: rows, and since which epoch each is held."""

    rows: RowNumbers
    epochs: Ints


class Leases(Handlers):
    """Decides when holders are released, and sends the releases.

    Args:
        timers: end the waits.
        ownership: ends the leaderships of former owners.
    """

    def __init__(self, context: ControllerContext, timers: Timers, ownership: Ownership) -> None:
        super().__init__(context)
        self._ownership = ownership
        self._timers = timers
        self._reset()

    def _reset(self) -> None:
        self._numbers: dict[int, tuple[int, int]] = {}  # by broker: epoch and number of its last report
        self._left: set[tuple[int, int]] = set()  # registrations that have reported that they leave
        self._evicted: dict[tuple[int, int], bool] = {}  # registrations, and whether the wait for them has begun
        self._silent: dict[int, _Silence] = {}
        self._lives: dict[int, list[bytes]] = {}  # by broker: the incarnations that its past life stands for
        self.cluster.holds.until_ms.clear()
        self.cluster.holds.evicted.clear()
        self._began_ms = self.clock.monotonic_ms()

    def handlers(self) -> dict[type[Event], Handler]:
        return {
            ReportLeaderships: self.on_report_leaderships,
            HolderSilence: self.on_holder_silence,
            HolderExpiry: self.on_holder_expiry,
        }

    @property
    def _columns(self) -> HoldColumns:
        return self.cluster.table.hold_columns()

    # -- the takeover --------------------------------------------------------------------------------------------------

    def begin(self, stored: Iterable[Broker]) -> None:
        """Begin a controllership: any participant in the store may have any leadership.

        Of those that vanished before, nothing is known. If sessions are only witnessed, new leaders wait for them, too.
        """
        self._reset()
        holds = self.cluster.holds
        for broker in stored:
            if not broker.incarnation:
                continue
            if broker.evicted:
                self._wait_for_past(broker)
                holds.unanswered.add(past_life(broker.id))
            elif broker.id in self.cluster.brokers:
                holds.unanswered.add(broker.id)
            self._wait_for_vanished(broker.handover_wait_ms)

    def _wait_for_vanished(self, wait_ms: int) -> None:
        """Hold new leaders until sessions that vanished before the takeover have ended for some time."""
        until_ms = self._began_ms + wait_ms
        if wait_ms and until_ms > self.clock.monotonic_ms():
            self.cluster.holds.unanswered.add(VANISHED_BEFORE)
            self._wait_until(VANISHED_BEFORE, until_ms)

    def state_sent(self, brokers: Iterable[int]) -> None:
        """Send some brokers the end of their complete state, after the last request of it was queued."""
        self.channels.send(state_sent(self.cluster, brokers))

    # -- registrations -------------------------------------------------------------------------------------------------

    def without_evicted(self, stored: dict[int, Broker]) -> dict[int, Broker]:
        """Returns the registrations of brokers that count as live."""
        return {id_: broker for id_, broker in stored.items() if not broker.evicted}

    def life_ended(self, ended: Broker, stored: Broker | None) -> None:
        """Hold what a participant led, if its lease may still be valid after its registration has ended.

        Args:
            stored: the registration of the id now: the same with the mark of an eviction, another one, or None.
        """
        if not ended.incarnation:
            return
        key = ended.id, ended.epoch
        if stored is not None and stored.evicted:
            if stored.epoch == ended.epoch:
                self._evicted.setdefault(key, False)
            stored = None
        successor = stored
        continues = successor is not None and is_next_life(ended.incarnation, successor.incarnation)
        if continues or key in self._left or not (ended.handover_wait_ms or key in self._evicted):
            self.cluster.holds.release(self._columns, ended.id)
        else:
            self.cluster.holds.end_life(self._columns, ended.id)
            if not self._evicted.get(key):
                self._wait_for_past(ended)
        self._left.discard(key)
        self._evicted.pop(key, None)
        self._silent.pop(ended.id, None)
        self._timers.cancel(HolderSilence(ended.id, ended.epoch))
        if successor is not None:
            self.life_began(successor)
        self.send_releases()

    def life_began(self, broker: Broker) -> None:
        """Release the earlier lives of a participant, if all of them have ended before it registered again."""
        lives = self._lives.get(broker.id, [])
        if lives and all(is_next_life(life, broker.incarnation) for life in lives):
            self._over(past_life(broker.id))
            self._resume_deletions()
        self._wait_for_vanished(broker.handover_wait_ms)

    def _wait_for_past(self, broker: Broker) -> None:
        """Wait until the leases of a registration have ended. Its renewals do not count from now on."""
        self._lives.setdefault(broker.id, []).append(broker.incarnation)
        if broker.evicted or (broker.id, broker.epoch) in self._evicted:
            self.cluster.holds.evicted.add(past_life(broker.id))
        wait_ms = broker.handover_wait_ms or broker.timeout_ms or TIMEOUT_MS
        self._wait_until(past_life(broker.id), self.clock.monotonic_ms() + wait_ms)

    def _wait_until(self, holder: int, until_ms: float) -> None:
        ends_ms = self.cluster.holds.until_ms
        ends_ms[holder] = max(until_ms, ends_ms.get(holder, until_ms))
        self._timers.set(HolderExpiry(holder), ends_ms[holder] - self.clock.monotonic_ms())

    async def on_holder_expiry(self, event: HolderExpiry) -> None:
        self._over(event.holder)
        self.send_releases()

    def _over(self, holder: int) -> None:
        self._timers.cancel(HolderExpiry(holder))
        self.cluster.holds.until_ms.pop(holder, None)
        self.cluster.holds.evicted.discard(holder)
        self._lives.pop(past_life(holder), None)
        self.cluster.holds.release(self._columns, holder)

    # -- reports -------------------------------------------------------------------------------------------------------

    async def on_report_leaderships(self, event: ReportLeaderships) -> None:
        broker, holds = event.broker, self.cluster.holds
        registered = self.cluster.brokers.get(broker)
        if registered is None:
            raise BrokerNotAvailable(broker)
        if registered.epoch != event.broker_epoch:
            raise StaleBrokerEpoch(broker, event.broker_epoch, registered.epoch)
        number = event.broker_epoch, event.number
        if self._numbers.get(broker, number) > number:
            return
        self._numbers[broker] = number
        columns = self._columns
        holds.ended(columns, *self._rows(event.ended), broker)
        rows, epochs = self._rows(event.waiting)
        holds.waits(columns, rows, epochs, broker)
        self._ownership.prepared(rows)
        if event.complete == self.epoch:
            holds.unanswered.discard(broker)
        if event.leaving:
            self._left.add((broker, event.broker_epoch))
            holds.leave(columns, broker)
        await self._read_settings_of_waiting()
        self.send_releases()
        self._watch_blockers()

    def _rows(self, reported: LeaderEpochs) -> tuple[RowNumbers, Ints]:
        """Returns the rows and epochs of a report, without partitions of topics that are not known, or not any more."""
        table = self.cluster.table
        names, leader_epoch = reported.columns()
        rows = table.rows_at(names)
        known = rows != NO_ROW
        for number, ref in enumerate(names.topics):
            topic = table.topic(ref.name)
            if topic is not None and ZERO_ID not in (ref.id, topic.ref.id) and ref.id != topic.ref.id:
                known &= names.topic != number
        return rows[known], leader_epoch[known]

    # -- topics without holds ------------------------------------------------------------------------------------------

    async def _read_settings_of_waiting(self) -> None:
        """Read the settings of topics whose leaders wait, unless they are known.

        Settings are not read before elections: a takeover and a failure would read them for every topic.
        """
        columns = self._columns
        waiting = self.cluster.holds.waiting(columns)
        if len(waiting):
            unknown = self.cluster.holds.with_unknown_setting(columns.topic[waiting])
            await self.read_settings([self.cluster.table.topic_at(number).name for number in unknown])

    async def read_settings(self, topics: Sequence[str]) -> None:
        """Read whether new leaders of some topics wait. What cannot be read is read again at the next report."""
        for begin in range(0, len(topics), TOPICS_AT_ONCE):
            part = topics[begin : begin + TOPICS_AT_ONCE]
            try:
                configs = await self.store.topic_configs(part)
            except StoreError as failed:
                log.warning("whether new leaders of %d topics wait could not be read: %s", len(part), failed)
                return
            self._configured(configs)

    def topic_configured(self, name: str, config: Mapping[str, str] | None) -> None:
        """Take note of changed overrides; None if they cannot be read. A leader that waits may be released by them."""
        self._configured({name: config})
        self.send_releases()

    def _configured(self, configs: Mapping[str, Mapping[str, str] | None]) -> None:
        leased: dict[int, bool] = {}
        for name, config in configs.items():
            topic = self.cluster.table.topic(name)
            if topic is not None and config is not None:
                leased[topic.number] = is_leased(config)
                if topic.ref.is_ownership:
                    self.cluster.standbys[name] = standbys(config)
        self.cluster.holds.set_leased(leased)

    def send_releases(self) -> None:
        """Release the leaders that have reported that they wait, and do not have to wait any longer."""
        if self.cluster.holds.is_used:
            rows = self.cluster.holds.pop_released(self._columns)
            if len(rows):
                self.channels.send(lease_releases(self.cluster, rows))
        self._resume_deletions()

    def _resume_deletions(self) -> None:
        """Resume the deletions that have waited for holders, after some of these were released."""
        holds = self.cluster.holds
        if holds.deletions and holds.pop_deletable(self._columns):
            self.context.enqueue(TopicDeletion())

    # -- holders that are silent ---------------------------------------------------------------------------------------

    def _watch_blockers(self) -> None:
        """Set timers for the participants for which leaders wait. The leaders report again, so none is missed."""
        holds, columns = self.cluster.holds, self._columns
        waiting = holds.waiting(columns)
        if not len(waiting):
            return
        blockers = holds.unanswered.union(different(np.maximum(columns.holder[waiting], NO_BROKER)))
        for broker in sorted(blockers & holds.participants - self._silent.keys()):
            registered = self.cluster.brokers[broker]
            self._silent[broker] = _Silence(*holds.held_by(columns, broker))
            self._timers.set(HolderSilence(broker, registered.epoch), registered.timeout_ms or TIMEOUT_MS)

    async def on_holder_silence(self, event: HolderSilence) -> None:
        broker, holds, columns = event.broker, self.cluster.holds, self._columns
        registered, before = self.cluster.brokers.get(broker), self._silent.get(broker)
        if registered is None or registered.epoch != event.broker_epoch or before is None:
            return
        waiting = holds.waiting(columns)
        still = (columns.holder[before.rows] == broker) & (columns.holder_epoch[before.rows] == before.epochs)
        if len(common(waiting, before.rows[still])) or (broker in holds.unanswered and len(waiting)):
            await self._evict(registered)
        else:
            del self._silent[broker]

    async def _evict(self, broker: Broker) -> None:
        """End the registration of a participant that may lead, and that no request reaches: it cannot renew."""
        log.warning(
            "broker %d has not reported the end of its leaderships for %d ms, though its session lives: it is evicted",
            broker.id,
            broker.timeout_ms or TIMEOUT_MS,
        )
        key = broker.id, broker.epoch
        self._evicted[key] = False  # if the response is lost, the wait begins when the mark is read
        self.context.sessions.evict(*key)
        await self.store.evict(*key, self.cluster.fence)
        self._evicted[key] = True
        self._silent.pop(broker.id, None)
        self.cluster.holds.end_life(self._columns, broker.id)
        self._wait_for_past(broker)
        self.history.add(
            BrokerEvent(what="evicted", broker=broker.id, broker_epoch=broker.epoch, controller_epoch=self.epoch)
        )
        self.context.enqueue(BrokerChange())

"""`min.insync.replicas` and `unclean.leader.election.enable` of every topic, read on demand and kept until they change.

The controller itself decides nothing by these copies: brokers enforce the first, and an election reads the second
again. Health checks, partition lists and previews use them, for example to name partitions that reject writes with
`acks=all`.

The value of a topic is its override, else the default for all brokers in the store, else the setting of the brokers'
own files, which kactl cannot read and takes from its configuration. Values of single brokers are not looked at.

An election reads in the store whether it may be unclean: the setting of a topic takes precedence over the one for all
brokers, and that over this instance's own.

Source: LogConfig, DynamicBrokerConfig (precedence); Partition.effectiveMinIsr (never more than there are replicas).
"""

import asyncio
import math
from typing import Final

import numpy as np

from kactl.config.controller_settings import KAFKA_DEFAULT
from kactl.decide.machines.election import Election, nobody_in_sync_online
from kactl.decide.state.cluster import Cluster
from kactl.decide.state.rows import Bools, Ints, Rows
from kactl.decide.state.table import Table
from kactl.model.errors import KactlError, StoreError
from kactl.runtime.clock import Clock
from kactl.runtime.logs import logger
from kactl.stores.base import Changed, Store, StoreEvent

log = logger(__name__)

UNCLEAN: Final = "unclean.leader.election.enable"

MIN_ISR: Final = "min.insync.replicas"
UNKNOWN: Final = 0
_NOT_READ: Final = -2
_NO_OVERRIDE: Final = -1
_ALLOWED: Final = 1
# One call of the store reads so many configurations: about 10 ms of the loop over ZooKeeper.
TOPICS_AT_ONCE: Final = 500
# A caller waits this long for configurations that are not known yet. Missing ones are then reported as unknown.
READ_LIMIT_S: Final = 2.0
# After a failure the store is left alone for this long, so that no caller waits for it in vain.
RETRY_MS: Final = 5_000
# An instance that is not the controller receives no notice of a changed configuration.
STANDBY_AGE_MS_MAX: Final = 60_000


class Unclean:
    """Reads whether unclean elections are allowed.

    Attributes:
        own: this instance's own setting.
        stored: the setting for all brokers in the store, which takes precedence; None if there is none.
    """

    def __init__(self, cluster: Cluster, store: Store, *, own: bool = False) -> None:
        self._cluster = cluster
        self._store = store
        self.own = own
        self.stored: bool | None = None

    @property
    def default(self) -> bool:
        """Returns whether unclean elections are allowed for topics without a setting."""
        return self.own if self.stored is None else self.stored

    async def allowed(self, rows: Rows, election: Election | None) -> tuple[Bools, Bools]:
        """Returns bool[n] twice: rows that need an unclean election and allow it; rows with an unreadable setting.

        Rows without leadership need none.
        """
        allowed = np.zeros(len(rows), np.bool_)
        unreadable = np.zeros(len(rows), np.bool_)
        if election not in (Election.OFFLINE, Election.UNCLEAN):
            return allowed, unreadable
        wanting = rows.has_leadership & nobody_in_sync_online(rows, self._cluster.live_brokers)
        if election is Election.UNCLEAN:
            return wanting, unreadable
        numbers = np.unique(rows.topic[wanting]).tolist()
        if not numbers:
            return allowed, unreadable
        names = {number: self._cluster.table.topic_at(number).name for number in numbers}
        try:
            configs = await self._store.topic_configs(sorted(names.values()))
        except StoreError as failed:
            log.error("the configuration of %d topics could not be read: %s", len(names), failed)
            configs = dict.fromkeys(names.values())
        for number, name in names.items():
            here = wanting & (rows.topic == number)
            config = configs.get(name)
            if config is None:
                unreadable |= here
                continue
            text = config.get(UNCLEAN)
            allowed |= here & (self.default if text is None else text.strip().lower() == "true")
        return allowed, unreadable


class TopicSettings:
    """Reads and caches settings of topics.

    Args:
        min_isr: `min.insync.replicas` of the brokers' own configuration files.
        unclean: whether unclean elections are allowed where the store has no setting.
    """

    def __init__(self, store: Store, clock: Clock, *, min_isr: int = KAFKA_DEFAULT, unclean: bool = False) -> None:
        self._store = store
        self._clock = clock
        self._own_min_isr = min_isr
        self._own_unclean = unclean
        self._reading = asyncio.Lock()
        self._table: Table | None = None
        self._default: int
        self._retry_ms = -math.inf
        self._defaults_seen = 0
        self._clear()

    def changed(self, event: StoreEvent) -> None:
        """Forget the values that a change in the store makes stale. Called in the event loop's thread; never raises."""
        if event.what is Changed.TOPIC_CONFIG:
            topic = None if self._table is None else self._table.topic(event.name)
            if topic is not None and topic.number < len(self._min_isr):
                self._min_isr[topic.number] = _NOT_READ
                self._stale.add(topic.number)
        elif event.what is Changed.DEFAULT_CONFIG:
            self._default = _NOT_READ
            self._defaults_seen += 1
        elif event.what in (Changed.SESSION_LOST, Changed.SESSION_OPENED):
            self._clear()

    async def refresh(self, cluster: Cluster, *, active: bool = True) -> None:
        """Read the unknown values of the topics of a cluster; bounded in time, and never raises for the store."""
        table = cluster.table
        if table is not self._table or (
            not active and self._clock.monotonic_ms() - self._since_ms > STANDBY_AGE_MS_MAX
        ):
            self._table = table
            self._clear()
        if not self._wants(table) or self._clock.monotonic_ms() < self._retry_ms:
            return
        try:
            async with asyncio.timeout(READ_LIMIT_S), self._reading:
                await self._read(table)
        except TimeoutError:
            log.info("min.insync.replicas of some topics is unknown: the store takes longer than %g s", READ_LIMIT_S)
            self._retry_ms = self._clock.monotonic_ms() + RETRY_MS
        except KactlError as failed:
            log.warning("min.insync.replicas could not be read: %s", failed)
            self._retry_ms = self._clock.monotonic_ms() + RETRY_MS

    def min_isr_of_topics(self, table: Table) -> Ints:
        """int32[T + 1], by topic number: the configured value, or UNKNOWN. The last entry belongs to free rows."""
        default = self._own_min_isr if self._default == _NO_OVERRIDE else max(self._default, UNKNOWN)
        values = np.full(len(table.refs) + 1, UNKNOWN, np.int32)
        if table is self._table:
            known = self._min_isr[: len(values) - 1]
            values[: len(known)] = np.where(known == _NO_OVERRIDE, np.int32(default), np.maximum(known, UNKNOWN))
        return values

    def min_isr_of_rows(self, table: Table, rows: Rows) -> Ints:
        """int32[n]: the configured value for each row, or UNKNOWN."""
        values: Ints = self.min_isr_of_topics(table)[rows.topic]
        return values

    def unclean_of_topics(self, table: Table) -> Bools:
        """bool[T + 1], by topic number: unclean elections are allowed; False if it is not known."""
        values = np.zeros(len(table.refs) + 1, np.bool_)
        if table is self._table:
            known = self._unclean[: len(values) - 1]
            values[: len(known)] = np.where(known == _NO_OVERRIDE, self._default_unclean, known == _ALLOWED)
        return values

    # -- reading -------------------------------------------------------------------------------------------------------

    def _clear(self) -> None:
        self._min_isr: Ints = np.zeros(0, np.int32)
        self._unclean: Ints = np.zeros(0, np.int32)
        self._default = _NOT_READ
        self._default_unclean = self._own_unclean
        self._defaults_seen += 1
        self._stale: set[int] = set()
        self._since_ms = self._clock.monotonic_ms()

    def _wants(self, table: Table) -> bool:
        if self._default == _NOT_READ or len(self._min_isr) < len(table.refs):
            return True
        return bool((self._min_isr == _NOT_READ).any())

    async def _read(self, table: Table) -> None:
        """Read in parts; the values of earlier parts are kept if a later one fails."""
        if self._default == _NOT_READ:
            seen = self._defaults_seen
            config = await self._store.default_config()
            if seen == self._defaults_seen:
                self._default = _min_isr(config)
                allowed = _unclean(config)
                self._default_unclean = self._own_unclean if allowed == _NO_OVERRIDE else allowed == _ALLOWED
        missing = len(table.refs) - len(self._min_isr)
        if missing > 0:
            self._min_isr = np.concatenate([self._min_isr, np.full(missing, _NOT_READ, np.int32)])
            self._unclean = np.concatenate([self._unclean, np.full(missing, UNKNOWN, np.int32)])
        values, unclean = self._min_isr, self._unclean
        wanted = [topic for topic in table.topics() if values[topic.number] == _NOT_READ]
        # Numbers of topics that are gone are never used again.
        values[values == _NOT_READ] = UNKNOWN
        for topic in wanted:
            values[topic.number] = _NOT_READ
        for begin in range(0, len(wanted), TOPICS_AT_ONCE):
            part = wanted[begin : begin + TOPICS_AT_ONCE]
            self._stale.clear()
            configs = await self._store.topic_configs([topic.name for topic in part])
            for topic in part:
                if topic.number not in self._stale:
                    values[topic.number] = _min_isr(configs.get(topic.name))
                    unclean[topic.number] = _unclean(configs.get(topic.name))


def _min_isr(config: dict[str, str] | None) -> int:
    """Returns the value of a configuration; _NO_OVERRIDE if unset, UNKNOWN if unreadable or no count of replicas."""
    if config is None:
        return UNKNOWN
    text = config.get(MIN_ISR, "").strip()
    if not text:
        return _NO_OVERRIDE
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 and int(text) > 0 else UNKNOWN


def _unclean(config: dict[str, str] | None) -> int:
    """Returns the value of a configuration; _NO_OVERRIDE if unset, UNKNOWN if it is unreadable or does not allow it."""
    text = None if config is None else config.get(UNCLEAN)
    if text is None:
        return UNKNOWN if config is None else _NO_OVERRIDE
    return _ALLOWED if text.strip().lower() == "true" else UNKNOWN

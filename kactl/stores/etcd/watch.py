"""One watch of the cluster's keys. Its events become events of the store.

The watch begins at a revision and continues behind the last revision that it has delivered, over any number of
connections, so no change is lost. If the server has discarded that revision meanwhile (compaction), everything may have
changed: each armed kind is reported once. If the store has an earlier revision than the client has seen, a backup was
restored. The client's session ends then, since everything that was read may be wrong.

A connection can be silent for ever: behind a firewall that has forgotten it, or at a member that is cut off from the
others. So the client compares at intervals what it has received with the revision of the store, and opens the watch
again if that is ahead for too long.

The watch contains leadership only while it is needed: by a client that keeps a copy (`changes`), or that watches
single partitions.
"""

import asyncio
import bisect
import logging
from collections.abc import Awaitable, Callable, Collection
from contextlib import aclosing
from typing import Final

import anyio

from kactl.decide.state.records import Changes, Names
from kactl.model import TopicPartition
from kactl.model.errors import StoreError, StoreUnavailable
from kactl.runtime.conditions import Conditions
from kactl.runtime.logs import logger
from kactl.stores.base import Changed, StoreEvent
from kactl.stores.deleted_topics import DeletedTopics
from kactl.stores.formats.registration import is_broker_id

from . import messages
from .armed_watches import RevisionWatches
from .calls import WATCH
from .client import Client
from .keys import Interval, name_in
from .messages import DELETE, PUT, WatchEvent, WatchResponse
from .topics import MISSING, Topics
from .written_keys import WrittenKeys

log = logger(__name__)

_RETRY_S: Final = 0.2
# A server with a newer revision than the last event may have it from keys of others.
_BARRIER_AFTER_S: Final = 0.05


class ClusterWatch:
    """The watch of one client.

    Args:
        watches: what the client has read, and its listener.
        deleted_topics: receives deletions.
        on_client_key: called when the key of this client was deleted: its session may have ended.
        on_restored: called when the store has gone back to an earlier revision.
    """

    def __init__(
        self,
        client: Client,
        topics: Topics,
        watches: RevisionWatches,
        deleted_topics: DeletedTopics,
        *,
        on_client_key: Callable[[bytes], None],
        on_restored: Callable[[], None],
    ) -> None:
        self._client = client
        self._topics = topics
        self._watches = watches
        self._deleted_topics = deleted_topics
        self._on_client_key = on_client_key
        self._on_restored = on_restored
        self._conditions = Conditions(log)
        self._restores = 0  # part of a position: revisions of before mean something else
        self._seen = 0
        self._progress = asyncio.Event()
        self._scope: anyio.CancelScope | None = None
        self._written: WrittenKeys | None = None
        self._leaderships: dict[tuple[int, int], TopicPartition] = {}
        self._leaderships_after = 0
        self.unreadable_requests: set[bytes] = set()
        keys = client.keys
        # In the order of the keys, so that the folder of a key is found by bisection.
        self._folders: list[tuple[Interval, Callable[[WatchEvent, str], None]]] = sorted(
            (
                (keys.topics, self._on_topic),
                (keys.brokers, self._on_broker),
                (Interval(keys.root + b"clients/", keys.root + b"clients0"), self._on_client),
                (keys.topic_configs, self._fires(Changed.TOPIC_CONFIG, named=True)),
                (keys.deletions, self._fires(Changed.DELETIONS)),
                (keys.isr_notifications, self._fires(Changed.ISR_NOTIFICATIONS)),
                (keys.log_dir_notifications, self._fires(Changed.LOG_DIR_NOTIFICATIONS)),
                (keys.states, self._on_state),
            ),
            key=lambda folder: folder[0],
        )
        self._single: dict[bytes, Callable[[WatchEvent], None]] = {
            keys.controller: self._on_controller,
            keys.default_config: lambda event: self._fire(event, Changed.DEFAULT_CONFIG),
            keys.reassignment_request: lambda event: self._on_request(event, Changed.REASSIGNMENT_REQUEST),
            keys.preferred_election_request: lambda event: self._on_request(event, Changed.PREFERRED_ELECTION_REQUEST),
        }

    # -- the stream

    async def begin(self) -> None:
        """Begin at the present revision; what is written from now on is reported once `run` runs."""
        self._seen = await self._client.revision()

    async def run(self) -> None:
        """Watch until cancelled. A lost connection is opened again."""
        while True:
            with anyio.CancelScope() as self._scope:
                try:
                    await self._stream(self._interval())
                except StoreUnavailable as error:
                    log.debug("the watch is opened again: %s", error)
                    await anyio.sleep(_RETRY_S)
                except StoreError as error:
                    text = "the watch could not be opened, trying again: %s"
                    self._conditions.add("", logging.WARNING, text, error)
                    await anyio.sleep(_RETRY_S)

    async def verify(self, barrier: Callable[[], Awaitable[None]]) -> None:
        """Verify until cancelled that the watch receives what is written; see `catch_up`."""
        while True:
            await anyio.sleep(self._client.calls.limit_s)
            try:
                await self.catch_up(barrier)
            except StoreError as error:
                log.debug("the watch could not be verified: %s", error)

    def _interval(self) -> Interval:
        keys = self._client.keys
        return keys.all if self._with_states else keys.all_but_states

    @property
    def _with_states(self) -> bool:
        return self._written is not None or bool(self._leaderships)

    async def _stream(self, interval: Interval) -> None:
        request = messages.watch(*interval, self._seen + 1)
        async with aclosing(self._client.calls.responses(WATCH, request)) as responses:
            async for response in responses:
                if interval != self._interval():
                    return  # leadership that is needed by now could be missing from this response
                result = messages.watch_response.parse(response)
                if result.compact_revision:
                    self._compacted(await self._client.revision())
                    return
                if result.canceled:
                    # Also the answer to a token that has expired, or that a restarted server does not know.
                    self._client.calls.renew_token()
                    raise StoreUnavailable(f"etcd ended the watch: {result.cancel_reason}")
                self._receive(result)

    def _receive(self, result: WatchResponse) -> None:
        for event in result.events:
            self._handle(event)
        if result.events:
            revision = result.events[-1].kv.mod_revision
            # The next fragment may continue the revision. It is received again, as a whole, over the next connection.
            self._advance(revision - 1 if result.fragment else revision)
        elif not result.created:
            self._advance(result.header.revision)  # a notice of progress

    def _advance(self, revision: int) -> None:
        self._seen = max(self._seen, revision)
        self._progress.set()
        self._progress = asyncio.Event()

    def _compacted(self, revision: int) -> None:
        """Handle the loss of the events up to a revision."""
        log.info("etcd has discarded the revisions behind %d: everything is read again", self._seen)
        if self._written is not None:
            self._written.forget(revision)
        for name in self._leaderships.values():
            self._watches.fire(StoreEvent(Changed.LEADERSHIP, str(name)))
        self._watches.fire_all_at(revision)
        self._advance(revision)

    def _restored(self, known: int, revision: int) -> None:
        """Begin anew at an earlier revision than the last known one."""
        log.error(
            "etcd has gone back from revision %d to %d, as after a restored backup: this client's session ends, and "
            "everything is read again; if that was not intended, stop all programs and restore its data",
            known, revision,
        )  # fmt: skip
        self._restores += 1
        self._seen = self._client.newest_revision = revision
        self._topics.forget()
        if self._written is not None:
            self._written.forget(revision)
        self._restart()
        self._on_restored()

    async def catch_up(self, barrier: Callable[[], Awaitable[None]]) -> int:
        """Wait until everything that was written before this call has been received. Returns a revision behind it.

        Args:
            barrier: writes a key of this client, for the case that the newest revision is of another program's keys.

        Raises:
            StoreUnavailable: the watch has not received it in time. If it has received nothing, it is opened again.
        """
        # The watch can be behind what other responses have shown, and behind the backup too.
        known, restores = max(self._seen, self._client.newest_revision), self._restores
        revision = await self._client.revision()
        if revision < known and restores == self._restores:
            self._restored(known, revision)
        if self._seen < revision:
            before, scope = self._seen, self._scope
            try:
                with anyio.fail_after(self._client.calls.limit_s):
                    await self._wait_for(revision, barrier)
            except TimeoutError:
                if self._seen == before and self._scope is scope:
                    log.warning("etcd's watch is silent behind revision %d and is opened again", before)
                    self._restart()
                raise StoreUnavailable(f"etcd's watch has not reached revision {revision} in time") from None
        return revision

    async def _wait_for(self, revision: int, barrier: Callable[[], Awaitable[None]]) -> None:
        with anyio.move_on_after(_BARRIER_AFTER_S):
            await self._wait_until(revision)
            return
        await barrier()
        await self._wait_until(revision)

    async def _wait_until(self, revision: int) -> None:
        while self._seen < revision:
            await self._progress.wait()

    def _restart(self) -> None:
        """Open the watch again with another range of keys; it continues where it is."""
        if self._scope is not None:
            self._scope.cancel()

    # -- copies and single partitions

    async def record(self) -> tuple[int, ...]:
        """Begin to record what is written. Returns the position from which on it is recorded."""
        # What was received while the response was on its way is not recorded, and known to the caller's next read.
        revision = max(await self._client.revision(), self._seen)
        was_with_states = self._with_states
        self._written = WrittenKeys(revision)
        if not was_with_states:
            self._restart()
        return revision, self._restores

    def stop_recording(self) -> None:
        """Stop recording. The watch loses leadership at its next connection, as the server sends little of it."""
        self._written = None
        if not self._with_states:
            self._restart()

    async def changes(self, since: tuple[int, ...], until: int) -> Changes:
        """Returns what was written after a position, and the position at a later revision."""
        position = (until, self._restores)
        known = self._written is not None and since[1:] == position[1:]
        written = self._written.since(since[0]) if self._written is not None and known else None
        if written is None:
            return Changes.unknown(position)
        names = self._topics.names()
        if any(not isinstance(entry, str) and entry[0] not in names for entry in written):
            await self._topics.all_numbers()
            names = self._topics.names()
        topics = frozenset(name for name in written if isinstance(name, str))
        partitions = [
            TopicPartition(names[entry[0]], entry[1])
            for entry in dict.fromkeys(written)
            if not isinstance(entry, str) and entry[0] in names
        ]
        return Changes(position, False, topics, Names.of(partitions))

    async def watch_leaderships(self, names: Collection[TopicPartition]) -> None:
        """See `Store.watch_leaderships`."""
        topics = list(dict.fromkeys(name.topic for name in names))
        numbers = await self._topics.read_numbers(topics) if topics else {}
        revision = await self._client.revision()
        was_with_states = self._with_states
        self._leaderships = {
            (numbers[name.topic], name.partition): name for name in names if numbers.get(name.topic, MISSING) != MISSING
        }
        self._leaderships_after = revision
        if self._with_states != was_with_states:
            self._restart()

    def forget(self) -> None:
        """Forget what the client has read: its session has ended."""
        self._leaderships = {}

    # -- events

    def _handle(self, event: WatchEvent) -> None:
        key = event.kv.key
        single = self._single.get(key)
        if single is not None:
            single(event)
            return
        index = bisect.bisect_right(self._folders, key, key=lambda folder: folder[0].begin) - 1
        if index >= 0:
            interval, handle = self._folders[index]
            if key < interval.end:
                handle(event, name_in(interval, key))

    def _fire(self, event: WatchEvent, what: Changed, name: str = "") -> None:
        self._watches.fire_at(StoreEvent(what, name), event.kv.mod_revision)

    def _fires(self, what: Changed, *, named: bool = False) -> Callable[[WatchEvent, str], None]:
        return lambda event, name: self._fire(event, what, name if named else "")

    def _on_controller(self, event: WatchEvent) -> None:
        self._fire(event, Changed.CONTROLLER_GONE if event.type == DELETE else Changed.CONTROLLER)

    def _on_topic(self, event: WatchEvent, name: str) -> None:
        kv = event.kv
        if event.type == PUT and self._written is not None:
            self._written.add(kv.mod_revision, name)
        if event.type == DELETE:
            self._topics.note(name, MISSING)
            self._deleted_topics.record_deletion(name, below=kv.mod_revision)
            self._fire(event, Changed.TOPICS)
        elif kv.version == 1:
            self._topics.note(name, kv.create_revision)
            self._fire(event, Changed.TOPICS)
        else:
            self._fire(event, Changed.TOPIC, name)

    def _on_broker(self, event: WatchEvent, name: str) -> None:
        if not is_broker_id(name):
            return  # see `Brokers.read_all`
        if event.type == PUT and event.kv.version > 1:
            self._fire(event, Changed.BROKER, name)
        else:
            self._fire(event, Changed.BROKERS)

    def _on_client(self, event: WatchEvent, name: str) -> None:
        if event.type == DELETE:
            self._on_client_key(event.kv.key)

    def _on_request(self, event: WatchEvent, what: Changed) -> None:
        """Report a new request, or the repair of one that could not be read."""
        key = event.kv.key
        if event.type == DELETE:
            self.unreadable_requests.discard(key)
        elif event.kv.version == 1 or key in self.unreadable_requests:
            self.unreadable_requests.discard(key)
            self._fire(event, what)

    def _on_state(self, event: WatchEvent, name: str) -> None:
        state = self._client.keys.state_of_key(event.kv.key)
        if state is None or event.type == DELETE:
            return
        if self._written is not None:
            self._written.add(event.kv.mod_revision, state)
        watched = self._leaderships.get(state)
        if watched is not None and event.kv.mod_revision > self._leaderships_after:
            self._fire(event, Changed.LEADERSHIP, str(watched))

"""The active controller's own entry among the registrations of brokers, for brokers up to 2.8.

These look for the address of the controller in /brokers/ids/<id> when they shut down in an orderly way; later ones know
it from UpdateMetadata. The entry has a mark by which every instance of kactl passes it over.

A controller of Kafka's brokers would take the entry for a broker. It takes over once /controller is gone, and reads the
registrations after that. So the entry is ephemeral, in the session that holds the controllership: both end in one
transaction. It is created under the fence, after /controller, and deleted in the transaction that gives /controller up.
If another client deletes /controller, the entry is deleted as soon as that is seen; this instance takes the entries of
others away as well.

Source: KafkaServer.controlledShutdown (up to 2.8), KafkaController.initializeControllerContext.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError, ZookeeperError

from kactl.model import Broker, ControllerRecord, Fence
from kactl.runtime.clock import Clock
from kactl.runtime.logs import logger
from kactl.stores.formats import registration as format

from . import fenced_writes, layout, registration, request
from .client import Client
from .responses import Responses

log = logger(__name__)

_ANY: Final = -1


class ControllerEntry:
    """The entry of one client of the store; each method does nothing unless it is the controller's.

    Args:
        listed_as: the entry; None for none. See `Broker.listed_among` for its rack.
        held: the nodes by which this instance holds the controllership.
    """

    def __init__(self, client: Client, listed_as: Broker | None, clock: Clock, *, held: Sequence[str]) -> None:
        self._client = client
        self._held = held
        self._listed_as = listed_as
        self._clock = clock
        self._fence: Fence | None = None
        self._since_ms = 0
        self._may_exist = False

    def elected(self, fence: Fence) -> None:
        """This instance was elected; `keep` creates the entry from now on."""
        self._fence, self._since_ms = fence, self._clock.now_ms()

    def forget(self) -> None:
        """The session has ended, and the entry with it."""
        self._fence, self._may_exist = None, False

    async def keep(self, nodes: Mapping[int, Any], brokers: Mapping[int, Broker]) -> None:
        """Write the entry if it is missing or differs, and delete those of other instances.

        Args:
            nodes: the registrations as they were read: (data, stat), or an error.
            brokers: those of them that are brokers.

        Raises:
            ControllerMoved: a later controller was elected. Nothing was written.
        """
        if self._fence is None or self._listed_as is None:
            return
        entry = self._listed_as.listed_among(brokers.values())
        operations, own = [], None
        for number, node in nodes.items():
            if isinstance(node, ZookeeperError) or not format.is_controller(node[0]):
                continue
            if number == entry.id and node[1].ephemeralOwner == self._client.session_id:
                own = node
            else:
                operations.append(request.delete(self._client.path(layout.broker(number)), node[1].version))
        if entry.id not in brokers:  # a broker with this id is an error of its own; see the controller's log
            operations += self._written(entry, own)
        if not operations:
            return
        self._may_exist = True
        # Never without /controller, even if another client has just deleted it.
        held = [request.check(self._client.path(path), _ANY) for path in self._held]
        error = request.first_error(await registration.fenced(self._client, [*held, *operations], self._fence))
        if isinstance(error, BadVersionError | NodeExistsError | NoNodeError):
            log.info("the registrations changed meanwhile; they are read again: %r", error)  # their watch has fired
        elif error is not None:
            # Such as missing permissions, which a controller does not need for anything else.
            self._may_exist = own is not None
            log.warning(
                "%s could not be written: %r. Brokers up to 2.8 do not find this controller when they stop: permit it "
                "to create and delete there, or run `kactl broker drain` before each stop",
                layout.broker(entry.id),
                error,
            )

    def _written(self, entry: Broker, own: Any) -> list[Any]:
        """Returns the operations that create the entry or replace its data; none if it is as it should be."""
        data = format.encode(entry, self._since_ms, controller=True)
        if own is None:
            return [self._client.create(layout.broker(entry.id), data, ephemeral=True)]
        stored, stat = own
        if stored == data:
            return []
        return [request.put(self._client.path(layout.broker(entry.id)), data, stat.version)]

    def resigning(self) -> list[fenced_writes.Op]:
        """Stop keeping the entry. Returns the operations that precede the one that gives the controllership up."""
        self._fence = None
        if not self._may_exist or self._listed_as is None:
            return []
        return [fenced_writes.delete(layout.broker(self._listed_as.id))]

    def observe(self, record: ControllerRecord | None) -> None:
        """Delete the entry if the controllership, as it was read, is not this one any more."""
        if self._fence is not None and (record is None or record.epoch != self._fence.epoch):
            self.withdraw()

    def withdraw(self) -> None:
        """Delete the entry without waiting: the controllership was taken away, and a broker may be next."""
        self._fence = None
        if self._may_exist and self._listed_as is not None:
            path = self._client.path(layout.broker(self._listed_as.id))
            self._client.submit([request.delete(path, _ANY)], self._withdrawn)

    def _withdrawn(self, responses: Responses) -> None:
        error = responses.error or request.first_error(responses.results)
        if error is not None and not isinstance(error, NoNodeError):
            log.warning("the entry of this controller in %s stays until its session ends: %r", layout.BROKERS, error)

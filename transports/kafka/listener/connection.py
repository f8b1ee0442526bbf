"""One connection of a client or a broker: one request at a time, in order.

    read a head ─▶ handled here?        ─▶ small enough? read it, decode it in steps, send it to the controller, respond
                   handled by a broker? ─▶ relay it to a broker, and relay the response back
                   neither?             ─▶ close

Pipelined requests are handled one after the other, as brokers do, so that a connection holds one frame. A rejected
request gets a response with INVALID_REQUEST if its response type has an error field; otherwise the listener closes the
connection, as a broker does.
"""

import asyncio
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, NamedTuple

from kactl.errors import ErrorCode, MalformedMessage
from kactl.transports.kafka.codec.primitive import NO_TAGS

from .admission import Admission, Slot
from .api import Api
from .api_keys import API_KEY_MAX, API_VERSIONS, CONTROLLED_SHUTDOWN, REJECTED, RELAY_FIRST
from .apis import APIS
from .config_apis import CONFIG_APIS
from .config_handlers import ConfigHandlers
from .counters import ListenerCounters, PeerRejected
from .discovery_apis import API_VERSIONS_API
from .discovery_handlers import UNSUPPORTED
from .fair_queue import FairQueues, StepRunner
from .frames import Frames, Head, drained
from .identity import PREFIX_SIZE, BrokerAddresses, Claim, claim_of, is_broker_request
from .limits import ELEMENT_COST, FREE_SIZE, KIB, MIB, Limits
from .pools import Pools, Share
from .relay import Relay
from .responses import Handler, result
from .schema import STRING, Elements, Reader, Steps, TooManyElements, Values
from .stream import Stream

_INT32: Final = struct.Struct(">i")
# Larger requests about configs are relayed unread: a request about kactl names one broker only.
_CONFIG_SIZE_MAX: Final = 64 * KIB
# A request above its size limit is read and discarded up to this size, so that it gets a response. This takes some
# milliseconds; a larger one ends the connection.
DISCARD_SIZE_MAX: Final = 16 * MIB
# How long the end of a connection waits for the peer to read the last response and close.
_LINGER_S: Final = 1.0
_LINGER_SIZE: Final = 1 * MIB


class Shared(NamedTuple):
    """State that all connections of a listener share."""

    limits: Limits
    pools: Pools
    admission: Admission
    addresses: BrokerAddresses
    turns: FairQueues
    counters: ListenerCounters


class _RequestRejected(Exception):
    """A request is rejected; the connection continues if an error response is possible.

    Args:
        ends: whether the connection ends after the response.
    """

    def __init__(self, kind: str, reason: str, *, ends: bool = False) -> None:
        super().__init__(reason)
        self.kind = kind
        self.ends = ends


class Connection:
    """One connection, from its first request to its last.

    Args:
        slot: the connection's place in the admission; identified here.
        handlers: request handlers by api key.
        configs: handlers of requests about kactl's own configs.
        relay: for the requests that a broker handles; used by this connection only, and closed with it.
        peer: the peer's name in log messages.

    Attributes:
        is_busy: whether the controller has a request; it is carried out even if the peer disconnects.
    """

    def __init__(
        self,
        stream: Stream,
        slot: Slot,
        shared: Shared,
        *,
        handlers: Mapping[int, Handler],
        configs: ConfigHandlers,
        relay: Relay,
        peer: str,
    ) -> None:
        limits = shared.limits
        self._stream = stream
        self._slot = slot
        self._shared = shared
        self._limits = limits
        self._counters = shared.counters
        self._share = Share(shared.pools.clients, slot.group, timeout_s=limits.reserve_timeout_s)
        self._frames = Frames(stream, limits, self._share)
        self._handlers = handlers
        self._configs = configs
        self._relay = relay
        self._peer = peer
        self._claim: Claim | None = None
        self._is_reported = False
        self._turns = 0
        self._is_ending = False
        self.is_busy = False

    async def run(self) -> None:
        """Handle requests until the peer closes.

        Raises:
            Refused: a request was rejected; close the connection.
            OSError: the connection was lost.
        """
        try:
            while not self._is_ending and (head := await self._frames.head()) is not None:
                try:
                    await self._one(head)
                finally:
                    self._share.release()
                self._shared.admission.wait(self._slot)
        finally:
            self._relay.close()

    async def _one(self, head: Head) -> None:
        api = APIS.get(head.key)
        if head.key in REJECTED:
            raise PeerRejected("not_for_us", f"request {head.key} is for brokers: connect to a broker")
        if not 0 <= head.key <= API_KEY_MAX or head.version < 0:
            raise PeerRejected("unknown_api", f"there is no request {head.key} in version {head.version}")
        if head.key in CONFIG_APIS:
            await self._about_configs(head, CONFIG_APIS[head.key])
            return
        if api is None or (head.key in RELAY_FIRST and self._relay.possible):
            await self._relayed(head, self._frames.pieces(head))
            return
        self._counters.requests[api.name] += 1
        if head.version > api.version_max:
            await self._unsupported(head, api)
            return
        try:
            if head.left <= self._limits.size_max(api, is_broker=True):
                await self._identify(head)
            await self._handle(head, api)
        except _RequestRejected as rejection:
            await self._decline(head, api, rejection)

    # -- requests that kactl handles ----------------------------------------------------------------------------------

    async def _handle(self, head: Head, api: Api) -> None:
        size_max = self._limits.size_max(api, is_broker=self._is_broker)
        if head.left > size_max:
            raise await self._too_large(head, api, size_max)
        content = await self._frames.rest(head)
        async with self._take_turn() as turn:
            values = await self._decoded(head, api, content, turn)
        del content
        self._shared.admission.serve(self._slot)
        self.is_busy = True
        try:
            response = await self._handlers[api.key](values, head.version)
        finally:
            self.is_busy = False
        del values
        async with self._take_turn() as turn:
            body = await turn.steps(api.response.writing(response, head.version))
        del response
        await self._write(head, api, body)

    async def _decoded(self, head: Head, api: Api, content: bytes, turn: StepRunner) -> dict[str, Any]:
        elements = Elements(
            self._limits.elements_max(api, is_broker=self._is_broker),
            lambda count: self._share.charge(count * ELEMENT_COST),
        )
        try:
            return await turn.steps(_reading(head, api, content, elements))
        except TooManyElements as error:
            raise _RequestRejected(
                "elements", f"{api.name} has {error}: split it, or raise {self._limits.key_of(api)}"
            ) from None
        except MalformedMessage as error:
            raise _RequestRejected(
                "malformed",
                f"{api.name} in version {head.version} cannot be read: {error}; update the client that sent it",
                ends=True,
            ) from None

    async def _too_large(self, head: Head, api: Api, size_max: int) -> _RequestRejected:
        """Discard the rest of a frame, if it is not too large, so that the request can get a response."""
        of_brokers = self._limits.size_max(api, is_broker=True)
        unidentified = (
            ""
            if size_max == of_brokers
            else f" from {self._peer}, which is not identified as a broker (see kafka.broker-networks), where brokers "
            f"may send {of_brokers}"
        )
        reason = (
            f"{api.name} of {head.left} bytes, and at most {size_max} are allowed{unidentified}: split it, or raise "
            f"{self._limits.key_of(api)}"
        )
        if head.left > DISCARD_SIZE_MAX or _error_response(api, head.version, "") is None:
            raise PeerRejected("length", reason)
        async for _ in self._frames.pieces(head):
            pass
        return _RequestRejected("length", reason)

    async def _decline(self, head: Head, api: Api, rejection: _RequestRejected) -> None:
        """Send the response to a rejected request.

        Raises:
            Refused: its response type has no error field.
        """
        response = _error_response(api, head.version, str(rejection))
        if response is None:
            # Raised without a variable: the traceback would refer to itself, and keep the request in memory.
            raise PeerRejected(rejection.kind, str(rejection)) from None
        rejected = PeerRejected(rejection.kind, str(rejection))
        ending = ", and the connection is closed" if rejection.ends else ""
        self._counters.reject(rejected, self._peer, action=f"the request is rejected{ending}")
        await self._write(head, api, api.response.write(response, head.version))
        if rejection.ends:
            self._is_ending = True
            await self._linger()

    async def _linger(self) -> None:
        """Let the peer read the last response: closing with unread bytes would reset the connection and discard it."""
        self._stream.transport.write_eof()
        try:
            async with asyncio.timeout(_LINGER_S):
                left = _LINGER_SIZE
                while left > 0 and (piece := await self._stream.read(left)):
                    left -= len(piece)
        except (TimeoutError, OSError):
            pass

    async def _unsupported(self, head: Head, api: Api) -> None:
        if api.key != API_VERSIONS or head.left > self._limits.size_max(api, is_broker=False):
            raise PeerRejected(
                "unsupported_version",
                f"{api.name} in version {head.version}, and versions 0 to {api.version_max} are supported",
            )
        # A client cannot know the supported versions of this request; the response lists them.
        async for _ in self._frames.pieces(head):
            pass
        async with self._take_turn():
            await self._write(head, api, API_VERSIONS_API.response.write(UNSUPPORTED, 0))

    async def _write(self, head: Head, api: Api, body: bytes) -> None:
        """Send a response. The memory of a large one is reserved until the peer has read it."""
        flexible = api.response.is_flexible(head.version) and api.key != API_VERSIONS
        header = _INT32.pack(head.correlation_id) + (NO_TAGS if flexible else b"")
        if len(body) > FREE_SIZE:
            await self._share.reserve(len(body))
        self._stream.write(_INT32.pack(len(header) + len(body)), header, body)
        await drained(self._stream, self._limits)

    # -- requests that a broker handles --------------------------------------------------------------------------------

    async def _relayed(self, head: Head, pieces: AsyncIterator[bytes]) -> None:
        self._counters.requests["relayed"] += 1
        await self._relay.forward(head, self._served(pieces), self._stream)

    async def _served(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yields the pieces of a request; the last one completes it."""
        async for piece in pieces:
            yield piece
        self._shared.admission.serve(self._slot)

    async def _about_configs(self, head: Head, api: Api) -> None:
        """Handle a request about configs if it concerns kactl, which is known once it is decoded; or relay it."""
        if head.version > api.version_max or head.left > _CONFIG_SIZE_MAX:
            await self._relayed(head, self._frames.pieces(head))
            return
        content = await self._frames.rest(head)
        async with self._take_turn() as turn:
            try:
                values = await self._decoded(head, api, content, turn)
            except _RequestRejected:
                values = {"resources": []}  # relayed: the broker rejects it
        if not self._configs.concerns_only_kactl(values):
            await self._relayed(head, _whole(content))
            return
        self._counters.requests[api.name] += 1
        response = await self._configs.handlers()[api.key](values, head.version)
        await self._write(head, api, api.response.write(response, head.version))

    # -- identification ------------------------------------------------------------------------------------------------

    @property
    def _is_broker(self) -> bool:
        return self._slot.broker is not None

    def _take_turn(self) -> AbstractAsyncContextManager[StepRunner]:
        """Wait for a turn. Brokers, unidentified connections from their addresses, and others have separate queues."""
        kind = "brokers" if self._is_broker else "candidates" if self._slot.is_candidate else "clients"
        self._turns += 1
        return self._shared.turns.take(kind, had=self._turns)

    async def _identify(self, head: Head) -> None:
        """Treat the connection as a broker's while `identity` identifies it as one."""
        shared = self._shared
        if self._claim is not None and not (self._is_broker and shared.addresses.is_live(self._claim)):
            # The broker has registered again, or has failed, or has more connections than are reserved for it.
            shared.admission.forget(self._slot)
            self._share.move(shared.pools.clients, self._slot.group)
            self._claim = None
        if self._claim is not None or not is_broker_request(head.key):
            return
        claim = claim_of(head, await self._frames.prefix(head, PREFIX_SIZE))
        if claim is None:
            return
        if shared.addresses.proves(self._slot.address, claim):
            self._claim = claim
            shared.admission.identify(self._slot, claim.broker)
            self._share.move(shared.pools.brokers, claim.broker)
            shared.counters.identified = shared.admission.identified_count
        elif shared.addresses.is_live(claim) and not self._is_reported:
            self._is_reported = True
            notice = PeerRejected(
                "unidentified",
                f"names broker {claim.broker} and its epoch, but {self._slot.address} is not an address that this "
                "broker is registered under: if brokers connect from there, add it to kafka.broker-networks",
            )
            shared.counters.reject(notice, self._peer, action="the connection has the limits of a client")


async def _whole(content: bytes) -> AsyncIterator[bytes]:
    """Yields the content as one piece."""
    yield content


def _reading(head: Head, api: Api, content: bytes, elements: Elements) -> Steps[dict[str, Any]]:
    """Returns the steps that decode the body of a request, after the rest of its header."""
    reader = Reader(content, flexible=False, elements=elements)
    if head.key != CONTROLLED_SHUTDOWN or head.version:
        STRING.read(reader)  # the client id, always in the classic form
        if api.request.is_flexible(head.version):
            reader.tags()
    return api.request.reading(content, head.version, elements=elements, begin=reader.offset)


def _error_response(api: Api, version: int, reason: str) -> Values | None:
    """Returns a response that rejects the whole request; None if its response type has no error field."""
    top = {field.name for field in api.response.fields if field.since <= version <= field.until}
    return result(ErrorCode.INVALID_REQUEST, reason) if "error_code" in top else None

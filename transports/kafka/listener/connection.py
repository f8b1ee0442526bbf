"""One connection of a client or a broker: one request at a time, in order.

    read a head ─▶ handled here?        ─▶ small enough? read it, decode it in steps, send it to the controller, respond
                   handled by a broker? ─▶ relay it to a broker, and relay the response back
                   neither?             ─▶ close

A listener that authenticates its peers takes nothing but a login first, and decides about each request. It relays only
requests that name everything that they concern, after the peer was authorized for all of it (`relayed_authorization`).

Pipelined requests are handled one after the other, as brokers do, so that a connection holds one frame. A rejected
request gets a response with INVALID_REQUEST if its response type has an error field; otherwise the listener closes the
connection, as a broker does.
"""

import asyncio
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, NamedTuple

from kactl.model.errors import ErrorCode, MalformedMessage
from kactl.telemetry.attempts import Outcome
from kactl.transports.kafka.codec.primitive import NO_TAGS

from .admission import Admission, Slot
from .api import Api
from .api_keys import (
    API_KEY_MAX,
    API_VERSIONS,
    CONTROLLED_SHUTDOWN,
    REJECTED,
    RELAY_FIRST,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
)
from .apis import APIS
from .audit import CHANGES, RELAYED
from .authentication import ELEMENTS_MAX, LOGIN_TIMEOUT_S, REQUEST_SIZE_MAX, Login
from .config_apis import CONFIG_APIS
from .config_handlers import ConfigHandlers
from .counters import ListenerCounters, PeerRejected
from .discovery_apis import API_VERSIONS_API
from .discovery_handlers import UNSUPPORTED
from .field_types import Elements, Steps, TooManyElements, Values, body_begin, whole
from .frames import Frames, Head, drained
from .identity import PREFIX_SIZE, BrokerAddresses, Claim, claim_of, is_broker_request
from .limits import ELEMENT_COST, FREE_SIZE, KIB, MIB, Limits
from .permits import Permits
from .pools import Pools, Share
from .relay import NO_BROKER, Relay
from .relayed_apis import RELAYED_APIS
from .responses import Handler, result
from .sasl_apis import SASL_AUTHENTICATE_API, SASL_HANDSHAKE_API
from .stream import Stream
from .turns import Turns, stepwise
from .waits import WAITS, Waits

_INT16: Final = struct.Struct(">h")
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
    turns: Turns
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
        relay: for the requests that a broker handles; used by this connection only, and closed with it. None to relay
            nothing.
        is_checked: whether requests are relayed only after the peer was authorized for everything that they name.
        login: of this connection.
        permits: for its requests.
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
        relay: Relay | None,
        is_checked: bool,
        login: Login,
        permits: Permits,
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
        self._is_checked = is_checked
        self._login = login
        self._permits = permits
        self._peer = peer
        self._claim: Claim | None = None
        self._is_reported = False
        self._is_ending = False
        self._waits = Waits()
        stream.on_end = self._waits.end
        self.is_busy = False

    async def run(self) -> None:
        """Handle requests until the peer closes.

        Raises:
            Refused: a request was rejected; close the connection.
            OSError: the connection was lost.
        """
        WAITS.set(self._waits)
        login_limit = None
        if self._login.is_pending:
            login_limit = asyncio.get_running_loop().call_later(LOGIN_TIMEOUT_S, self._end_pending_login)
        try:
            while not self._is_ending and (head := await self._frames.head()) is not None:
                try:
                    await self._one(head)
                finally:
                    self._share.release()
                self._shared.admission.wait(self._slot)
                await self._permits.pause()
        except PeerRejected as rejection:
            self._permits.rejected(rejection)
            raise
        finally:
            if login_limit is not None:
                login_limit.cancel()  # it refers to this connection
            if self._relay is not None:
                self._relay.close()

    async def _one(self, head: Head) -> None:
        api = APIS.get(head.key)
        self._login.check(head.key, head.version)
        await self._login.confirm()
        if self._login.is_pending and head.left > REQUEST_SIZE_MAX:
            raise PeerRejected(
                "length", f"{head.left} bytes before the login, and at most {REQUEST_SIZE_MAX} are allowed"
            )
        if head.key in (SASL_HANDSHAKE, SASL_AUTHENTICATE):
            await self._log_in(head)
            return
        if head.key in REJECTED:
            raise PeerRejected("not_for_us", f"request {head.key} is for brokers: connect to a broker")
        if not 0 <= head.key <= API_KEY_MAX or head.version < 0:
            raise PeerRejected("unknown_api", f"there is no request {head.key} in version {head.version}")
        if self._is_checked and head.key in RELAYED_APIS:
            await self._authorized(head, RELAYED_APIS[head.key])
            return
        if head.key in CONFIG_APIS:
            await self._about_configs(head, CONFIG_APIS[head.key])
            return
        relay = self._open_relay
        if relay is not None and (api is None or (head.key in RELAY_FIRST and relay.possible)):
            await self._relayed(relay, head, self._frames.pieces(head))
            return
        if api is None or not self._permits.knows(head.key):
            raise PeerRejected("not_for_us", f"request {head.key} is for brokers: connect to a broker")
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
        await self._permits.pay(api, len(content))
        async with self._take_turn():
            values = await self._decoded(head, api, content)
        del content
        response = await self._carried_out(api, values, head.version, self._handlers[api.key])
        del values
        async with self._take_turn():
            body = await stepwise(api.response.writing(response, head.version))
        del response
        await self._write(head, api, body)

    async def _carried_out(self, api: Api, values: dict[str, Any], version: int, handler: Handler) -> Values:
        """Returns the response to a request, of which the controller carries out the permitted part."""
        self._shared.admission.serve(self._slot)
        self.is_busy = True
        try:
            return await self._permits.carry_out(api, values, version, handler)
        finally:
            self.is_busy = False

    async def _decoded(self, head: Head, api: Api, content: bytes) -> dict[str, Any]:
        elements = Elements(
            ELEMENTS_MAX if self._login.is_pending else self._limits.elements_max(api, is_broker=self._is_broker),
            lambda count: self._share.charge(count * ELEMENT_COST),
        )
        try:
            return await stepwise(_reading(head, api, content, elements))
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
        if self._stream.transport.can_write_eof():
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

    @property
    def _open_relay(self) -> Relay | None:
        """What relays requests unread; None on listeners that authorize them."""
        return self._relay if self._relay is not None and not self._is_checked and self._relay.is_allowed else None

    async def _relayed(self, relay: Relay, head: Head, pieces: AsyncIterator[bytes]) -> None:
        self._counters.requests["relayed"] += 1
        await relay.forward(head, self._served(pieces), self._stream)

    async def _served(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yields the pieces of a request; the last one completes it."""
        async for piece in pieces:
            yield piece
        self._shared.admission.serve(self._slot)

    async def _about_configs(self, head: Head, api: Api) -> None:
        """Handle a request about configs if it concerns kactl, which is known once it is decoded; or relay it."""
        relay = self._open_relay
        if head.version > api.version_max or head.left > _CONFIG_SIZE_MAX:
            if relay is None:
                raise _of_brokers(api)
            await self._relayed(relay, head, self._frames.pieces(head))
            return
        content = await self._frames.rest(head)
        await self._permits.pay(api, len(content))
        async with self._take_turn():
            try:
                values = await self._decoded(head, api, content)
            except _RequestRejected:
                values = {"resources": []}  # relayed: the broker rejects it
        if not self._configs.concerns_only_kactl(values):
            if relay is None:
                raise _of_brokers(api)
            await self._relayed(relay, head, _whole(content))
            return
        self._counters.requests[api.name] += 1
        response = await self._carried_out(api, values, head.version, self._configs.handlers()[api.key])
        await self._write(head, api, api.response.write(response, head.version))

    async def _authorized(self, head: Head, api: Api) -> None:
        """Relay a request if the peer is authorized for everything that it names; or handle it if it concerns kactl.

        The broker receives what was decoded and decided about, encoded anew: bytes that it might read differently are
        not passed on.
        """
        if head.version > api.version_max:
            await self._unsupported(head, api)
            return
        size_max = self._limits.size_max(api, is_broker=False)
        try:
            if head.left > size_max:
                raise await self._too_large(head, api, size_max)
            content = await self._frames.rest(head)
            await self._permits.pay(api, len(content))
            async with self._take_turn():
                values = await self._decoded(head, api, content)
        except _RequestRejected as rejection:
            await self._decline(head, api, rejection)
            return
        if api.key in CONFIG_APIS and self._configs.concerns_only_kactl(values):
            self._counters.requests[api.name] += 1
            response = await self._carried_out(api, values, head.version, self._configs.handlers()[api.key])
            await self._write(head, api, api.response.write(response, head.version))
            return
        principal = self._login.principal
        if self._relay is None or principal is None:
            raise _of_brokers(api)
        verdict, _ = await self._permits.decide(api, values, head.version, principal)
        if verdict.request is None:
            await self._write(head, api, api.response.write(verdict.complete({}), head.version))
            return
        async with self._take_turn():
            body = await stepwise(api.request.writing(verdict.request, head.version))
        anew = _header_of(content, flexible=api.request.is_flexible(head.version)) + body
        outcome: Outcome = "unknown"
        detail = RELAYED
        try:
            await self._relayed(self._relay, head._replace(left=len(anew)), _whole(anew))
        except PeerRejected as rejection:
            if rejection.kind == NO_BROKER:
                outcome, detail = "failed", str(rejection)
            raise
        finally:
            if api.key in CHANGES and not verdict.request.get("validate_only"):
                self._permits.record(api, verdict.request, principal, outcome, detail)

    # -- identification ------------------------------------------------------------------------------------------------

    @property
    def _is_broker(self) -> bool:
        return self._slot.broker is not None

    def _take_turn(self) -> AbstractAsyncContextManager[None]:
        """Wait for a turn. Brokers, unidentified connections from their addresses, and others have separate queues."""
        return self._shared.turns.take(self._slot.kind)

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
        if self._proves(claim):
            self._claim = claim
            shared.admission.identify(self._slot, claim.broker)
            self._share.move(shared.pools.brokers, claim.broker)
        elif shared.addresses.is_live(claim) and not self._is_reported:
            self._is_reported = True
            notice = PeerRejected(
                "unidentified",
                f"names broker {claim.broker} and its epoch, but {self._slot.address} is not an address that this "
                "broker is registered under: if brokers connect from there, add it to kafka.broker-networks",
            )
            shared.counters.reject(notice, self._peer, action="the connection has the limits of a client")

    def _proves(self, claim: Claim) -> bool:
        """Returns whether this peer is the broker that it claims to be: by its login, or without one by its address."""
        principal = self._login.principal
        if principal is not None and principal.is_authenticated:
            return self._permits.may_speak_for(principal, claim.broker) and self._shared.addresses.is_live(claim)
        return self._shared.addresses.proves(self._slot.address, claim)

    # -- the login -----------------------------------------------------------------------------------------------------

    async def _log_in(self, head: Head) -> None:
        """Handle a request of the login."""
        api = SASL_HANDSHAKE_API if head.key == SASL_HANDSHAKE else SASL_AUTHENTICATE_API
        # Version 0 of SaslHandshake is followed by messages without frames.
        if not (1 if head.key == SASL_HANDSHAKE else 0) <= head.version <= api.version_max:
            raise PeerRejected("unsupported_version", f"{api.name} in version {head.version}: update the client")
        content = await self._frames.rest(head)
        async with self._take_turn():
            try:
                values = whole(_reading(head, api, content, Elements(ELEMENTS_MAX)))
            except MalformedMessage as error:
                raise PeerRejected("malformed", f"{api.name} cannot be read: {error}") from None
        # What follows is spread as well: the next connection has its turn in another iteration of the loop.
        if head.key == SASL_HANDSHAKE:
            response, ends = self._login.on_handshake(values)
        else:
            response, ends = await self._login.on_authenticate(values)
        await self._write(head, api, api.response.write(response, head.version))
        if ends:
            failure = PeerRejected("login", f"the login failed ({response['error_code'].name})")
            self._counters.reject(failure, self._peer)
            self._permits.rejected(failure)
            self._is_ending = True
            await self._linger()

    def _end_pending_login(self) -> None:
        if self._login.is_pending:
            self._stream.abort()


def _of_brokers(api: Api) -> PeerRejected:
    return PeerRejected("not_for_us", f"{api.name} is about brokers: connect to a broker")


def _header_of(content: bytes, *, flexible: bool) -> bytes:
    """Returns the rest of the header of a request that was decoded: the client id as it is, and no tagged fields."""
    (size,) = _INT16.unpack_from(content)
    return content[: _INT16.size + max(size, 0)] + (NO_TAGS if flexible else b"")


async def _whole(content: bytes) -> AsyncIterator[bytes]:
    yield content


def _reading(head: Head, api: Api, content: bytes, elements: Elements) -> Steps[dict[str, Any]]:
    """Returns the steps that decode the body of a request, after the rest of its header."""
    has_client_id = head.key != CONTROLLED_SHUTDOWN or head.version > 0
    has_tags = api.request.is_flexible(head.version)
    begin = body_begin(content, elements, has_client_id=has_client_id, has_tags=has_tags)
    return api.request.reading(content, head.version, elements=elements, begin=begin)


def _error_response(api: Api, version: int, reason: str) -> Values | None:
    """Returns a response that rejects the whole request; None if its response type has no error field."""
    top = {field.name for field in api.response.fields if field.since <= version <= field.until}
    return result(ErrorCode.INVALID_REQUEST, reason) if "error_code" in top else None

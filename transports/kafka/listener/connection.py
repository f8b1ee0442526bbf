"""One connection of a client or a broker: one request at a time, in order.

    read a head ─▶ ours?       ─▶ small enough? read it whole, decode it in steps, ask the controller, answer
                   a broker's? ─▶ relay it to one, and its answer back
                   neither?    ─▶ close

Requests that are sent together are answered one after the other, as brokers do, so that a connection holds one frame.
What a refused request gets: an answer with INVALID_REQUEST where its answers have an error of their own, else the end
of the connection, as from a broker.
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
from .api_keys import API_KEY_MAX, API_VERSIONS, CONTROLLED_SHUTDOWN, REFUSED, RELAYED_FIRST
from .apis import APIS
from .config_apis import CONFIG_APIS
from .config_handlers import OwnConfigs
from .counters import Refused, Tally
from .discovery_apis import API_VERSIONS_API
from .discovery_handlers import UNSUPPORTED
from .fair_queue import Turn, Turns
from .frames import Frames, Head, drained
from .identity import PREFIX_SIZE, BrokerAddresses, Claim, claim_of, is_broker_request
from .limits import ELEMENT_COST, FREE_SIZE, KIB, MIB, Limits
from .pools import Pools, Share
from .relay import Relay
from .responses import Answer, result
from .schema import STRING, Elements, Reader, Steps, TooManyElements, Values
from .stream import Stream

_INT32: Final = struct.Struct(">i")
# Requests about configs that are larger than this are relayed unread: those that are about kactl name one broker.
_CONFIG_SIZE_MAX: Final = 64 * KIB
# A request that is too large is read and thrown away up to here, so that it can be answered. It costs some
# milliseconds; a larger one ends the connection.
DISCARD_SIZE_MAX: Final = 16 * MIB
# How long the end of a connection waits for the peer to read the last answer and close.
_LINGER_S: Final = 1.0
_LINGER_SIZE: Final = 1 * MIB


class Shared(NamedTuple):
    """What all connections of a listener share."""

    limits: Limits
    pools: Pools
    admission: Admission
    addresses: BrokerAddresses
    turns: Turns
    tally: Tally


class _Declined(Exception):
    """A request is refused, the connection goes on if that can be answered.

    Args:
        ends: whether the connection ends all the same, behind the answer.
    """

    def __init__(self, kind: str, reason: str, *, ends: bool = False) -> None:
        super().__init__(reason)
        self.kind = kind
        self.ends = ends


class Connection:
    """One connection, from its first request to its last.

    Args:
        slot: its place; identified here.
        answers: by the number of the request.
        configs: answers requests about kactl's own configs.
        relay: for all that a broker answers; of this connection alone, and closed with it.
        peer: how the log names it.

    Attributes:
        is_asking: whether the controller has a request; it is carried out though the peer may be gone.
    """

    def __init__(
        self,
        stream: Stream,
        slot: Slot,
        shared: Shared,
        *,
        answers: Mapping[int, Answer],
        configs: OwnConfigs,
        relay: Relay,
        peer: str,
    ) -> None:
        limits = shared.limits
        self._stream = stream
        self._slot = slot
        self._shared = shared
        self._limits = limits
        self._tally = shared.tally
        self._share = Share(shared.pools.clients, slot.group, timeout_s=limits.reserve_timeout_s)
        self._frames = Frames(stream, limits, self._share)
        self._answers = answers
        self._configs = configs
        self._relay = relay
        self._peer = peer
        self._claim: Claim | None = None
        self._is_noticed = False
        self._turns = 0
        self._is_ending = False
        self.is_asking = False

    async def run(self) -> None:
        """Answer until the peer closes.

        Raises:
            Refused: it sent what is not taken; close.
            OSError: it is gone.
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
        if head.key in REFUSED:
            raise Refused("not_for_us", f"request {head.key} is for brokers, and kactl is none: it is not carried out")
        if not 0 <= head.key <= API_KEY_MAX or head.version < 0:
            raise Refused("unknown_api", f"there is no request {head.key} in version {head.version}")
        if head.key in CONFIG_APIS:
            await self._about_configs(head, CONFIG_APIS[head.key])
            return
        if api is None or (head.key in RELAYED_FIRST and self._relay.possible):
            await self._relayed(head, self._frames.pieces(head))
            return
        self._tally.requests[api.name] += 1
        if head.version > api.version_max:
            await self._unsupported(head, api)
            return
        try:
            if head.left <= self._limits.size_max(api, is_broker=True):
                await self._identify(head)
            await self._own(head, api)
        except _Declined as declined:
            await self._decline(head, api, declined)

    # -- requests that are answered here -------------------------------------------------------------------------------

    async def _own(self, head: Head, api: Api) -> None:
        size_max = self._limits.size_max(api, is_broker=self._is_broker)
        if head.left > size_max:
            raise await self._too_large(head, api, size_max)
        content = await self._frames.rest(head)
        async with self._take_turn() as turn:
            values = await self._decoded(head, api, content, turn)
        del content
        self._shared.admission.serve(self._slot)
        self.is_asking = True
        try:
            answer = await self._answers[api.key](values, head.version)
        finally:
            self.is_asking = False
        del values
        async with self._take_turn() as turn:
            body = await turn.steps(api.response.writing(answer, head.version))
        del answer
        await self._write(head, api, body)

    async def _decoded(self, head: Head, api: Api, content: bytes, turn: Turn) -> dict[str, Any]:
        elements = Elements(
            self._limits.elements_max(api, is_broker=self._is_broker),
            lambda count: self._share.charge(count * ELEMENT_COST),
        )
        try:
            return await turn.steps(_reading(head, api, content, elements))
        except TooManyElements as error:
            raise _Declined(
                "elements", f"{api.name} has {error}: split it, or raise {self._limits.key_of(api)}"
            ) from None
        except MalformedMessage as error:
            raise _Declined(
                "malformed",
                f"{api.name} in version {head.version} cannot be read: {error}; update the client that sent it",
                ends=True,
            ) from None

    async def _too_large(self, head: Head, api: Api, size_max: int) -> _Declined:
        """Throw the rest of a frame away, if it is not too much, so that the request can be answered."""
        of_brokers = self._limits.size_max(api, is_broker=True)
        unidentified = (
            ""
            if size_max == of_brokers
            else f" from {self._peer}, which is not identified as a broker (see kafka.broker-networks), where brokers "
            f"may send {of_brokers}"
        )
        reason = (
            f"{api.name} of {head.left} bytes, and at most {size_max} are taken{unidentified}: split it, or raise "
            f"{self._limits.key_of(api)}"
        )
        if head.left > DISCARD_SIZE_MAX or _refusal(api, head.version, "") is None:
            raise Refused("length", reason)
        async for _ in self._frames.pieces(head):
            pass
        return _Declined("length", reason)

    async def _decline(self, head: Head, api: Api, declined: _Declined) -> None:
        """Answer a refused request.

        Raises:
            Refused: its answers have no place for an error.
        """
        refused = Refused(declined.kind, str(declined))
        answer = _refusal(api, head.version, str(declined))
        if answer is None:
            raise refused
        ending = ", and the connection is closed" if declined.ends else ""
        self._tally.refuse(refused, self._peer, what=f"the request is refused{ending}")
        await self._write(head, api, api.response.write(answer, head.version))
        if declined.ends:
            self._is_ending = True
            await self._linger()

    async def _linger(self) -> None:
        """Let the peer read the last answer: bytes that it has sent and that are not read would destroy it."""
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
            raise Refused(
                "unsupported_version",
                f"{api.name} in version {head.version}, and versions 0 to {api.version_max} are understood",
            )
        # A client cannot know the versions of this request; the answer lists them.
        async for _ in self._frames.pieces(head):
            pass
        async with self._take_turn():
            await self._write(head, api, API_VERSIONS_API.response.write(UNSUPPORTED, 0))

    async def _write(self, head: Head, api: Api, body: bytes) -> None:
        """Send an answer. A large one is reserved until the peer has taken it."""
        flexible = api.response.is_flexible(head.version) and api.key != API_VERSIONS
        header = _INT32.pack(head.correlation_id) + (NO_TAGS if flexible else b"")
        if len(body) > FREE_SIZE:
            await self._share.reserve(len(body))
        self._stream.write(_INT32.pack(len(header) + len(body)), header, body)
        await drained(self._stream, self._limits)

    # -- requests that a broker answers --------------------------------------------------------------------------------

    async def _relayed(self, head: Head, pieces: AsyncIterator[bytes]) -> None:
        self._tally.requests["relayed"] += 1
        await self._relay.forward(head, self._served(pieces), self._stream)

    async def _served(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """A request that is there as a whole with its last piece."""
        async for piece in pieces:
            yield piece
        self._shared.admission.serve(self._slot)

    async def _about_configs(self, head: Head, api: Api) -> None:
        """Answered here if it is about kactl; what it is about is known once it has been read."""
        if head.version > api.version_max or head.left > _CONFIG_SIZE_MAX:
            await self._relayed(head, self._frames.pieces(head))
            return
        content = await self._frames.rest(head)
        async with self._take_turn() as turn:
            try:
                values = await self._decoded(head, api, content, turn)
            except _Declined:
                values = {"resources": []}  # a broker refuses it
        if not self._configs.asked_for(values):
            await self._relayed(head, _whole(content))
            return
        self._tally.requests[api.name] += 1
        answer = await self._configs.answers()[api.key](values, head.version)
        await self._write(head, api, api.response.write(answer, head.version))

    # -- identification ------------------------------------------------------------------------------------------------

    @property
    def _is_broker(self) -> bool:
        return self._slot.broker is not None

    def _take_turn(self) -> AbstractAsyncContextManager[Turn]:
        """Brokers, unidentified connections from their addresses, and all others take turns of their own."""
        kind = "brokers" if self._is_broker else "candidates" if self._slot.is_candidate else "clients"
        self._turns += 1
        return self._shared.turns.take(kind, had=self._turns)

    async def _identify(self, head: Head) -> None:
        """Take the connection for a broker's as long as `identity` finds it to be one."""
        shared = self._shared
        if self._claim is not None and not (self._is_broker and shared.addresses.is_live(self._claim)):
            # It has registered anew, or is gone, or has more connections than are kept for it.
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
            shared.tally.identified = shared.admission.identified_count
        elif shared.addresses.is_live(claim) and not self._is_noticed:
            self._is_noticed = True
            notice = Refused(
                "unidentified",
                f"names broker {claim.broker} and its epoch, and {self._slot.address} is none of the addresses that "
                "this broker is registered under: if brokers connect from there, add it to kafka.broker-networks",
            )
            shared.tally.refuse(notice, self._peer, what="it has the limits of a client")


async def _whole(content: bytes) -> AsyncIterator[bytes]:
    """One piece that is all there is."""
    yield content


def _reading(head: Head, api: Api, content: bytes, elements: Elements) -> Steps[dict[str, Any]]:
    """The body of a request, behind what is left of its header."""
    reader = Reader(content, flexible=False, elements=elements)
    if head.key != CONTROLLED_SHUTDOWN or head.version:
        STRING.read(reader)  # the client's id, in the classic form always
        if api.request.is_flexible(head.version):
            reader.tags()
    return api.request.reading(content, head.version, elements=elements, begin=reader.at)


def _refusal(api: Api, version: int, reason: str) -> Values | None:
    """An answer that refuses the request as a whole; None if answers of this kind cannot."""
    top = {field.name for field in api.response.fields if field.since <= version <= field.until}
    return result(ErrorCode.INVALID_REQUEST, reason) if "error_code" in top else None

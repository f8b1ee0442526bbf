"""One connection of a client or a broker: one request at a time, in order.

    read a head ─▶ ours?     ─▶ read it whole, ask the controller, answer
                   a broker's? ─▶ relay it to one, and its answer back
                   nobody's?   ─▶ close

Whoever sends several requests at once finds them answered one after the other, as brokers do; so nothing that a peer
does can be kept for it but one frame.
"""

import asyncio
import struct
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import anyio
import anyio.to_thread

from kactl.errors import MalformedMessage
from kactl.logs import logger
from kactl.transports.kafka.codec.primitive import NO_TAGS

from .answers import Answer
from .api import Api
from .apis import APIS
from .config_apis import CONFIG_APIS
from .discovery_apis import API_VERSIONS_API
from .frames import Frames, Head, Limits, drained
from .keys import API_KEY_MAX, API_VERSIONS, CONTROLLED_SHUTDOWN, REFUSED, RELAYED_FIRST
from .own_answers import UNSUPPORTED
from .own_configs import OwnConfigs
from .relay import Relay
from .schema import STRING, Reader
from .tally import Refused, Tally

log = logger(__name__)

_INT32: Final = struct.Struct(">i")
# Reading costs some 10 ns a byte: up to here nothing else happens for less than a millisecond. More is read in a
# worker thread, one at a time.
IN_LOOP_MAX: Final = 64 * 1024


class Connection:
    """See the module.

    Args:
        answers: by the number of the request.
        configs: what is answered to those that are about our own configs.
        relay: for all that is a broker's to answer; ours alone, and closed with this.
        reading: lets one body be read in a worker thread at a time.
    """

    def __init__(
        self,
        frames: Frames,
        writer: asyncio.StreamWriter,
        *,
        answers: Mapping[int, Answer],
        configs: OwnConfigs,
        relay: Relay,
        limits: Limits,
        tally: Tally,
        reading: anyio.CapacityLimiter,
    ) -> None:
        self._frames = frames
        self._writer = writer
        self._answers = answers
        self._configs = configs
        self._relay = relay
        self._limits = limits
        self._tally = tally
        self._reading = reading

    async def run(self) -> None:
        """Answer until the peer closes.

        Raises:
            Refused: it sent what is not answered; close.
            OSError: it is gone.
        """
        try:
            while (head := await self._frames.head()) is not None:
                try:
                    await self._one(head)
                finally:
                    self._frames.done()
        finally:
            self._relay.close()

    async def _one(self, head: Head) -> None:
        api = APIS.get(head.key)
        if head.key in REFUSED:
            raise Refused("not_for_us", f"request {head.key} is for brokers, and kactl is none: it obeys nobody")
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
        await self._write(head, api, await self._answered(head, api))

    async def _relayed(self, head: Head, pieces: AsyncIterator[bytes]) -> None:
        self._tally.requests["relayed"] += 1
        await self._relay.forward(head, pieces, self._writer)

    async def _about_configs(self, head: Head, api: Api) -> None:
        """Answered here if it is about us; what it is about is known once it has been read."""
        if head.version > api.version_max or head.left > IN_LOOP_MAX:
            await self._relayed(head, self._frames.pieces(head))
            return
        content = await self._frames.rest(head)
        try:
            values = _read(head, api, content)
        except MalformedMessage:
            values = {"resources": []}  # as little about us as about anybody
        if not self._configs.asked_for(values):
            await self._relayed(head, _whole(content))
            return
        self._tally.requests[api.name] += 1
        answer = await self._configs.answers()[api.key](values, head.version)
        await self._write(head, api, api.response.write(answer, head.version))

    async def _answered(self, head: Head, api: Api) -> bytes:
        content = await self._frames.rest(head)
        big = len(content) > IN_LOOP_MAX
        try:
            if big:
                values = await anyio.to_thread.run_sync(_read, head, api, content, limiter=self._reading)
            else:
                values = _read(head, api, content)
        except MalformedMessage as error:
            raise Refused("malformed", f"{api.name} in version {head.version} that cannot be read: {error}") from None
        del content
        answer = await self._answers[api.key](values, head.version)
        if big:
            return await anyio.to_thread.run_sync(api.response.write, answer, head.version, limiter=self._reading)
        return api.response.write(answer, head.version)

    async def _unsupported(self, head: Head, api: Api) -> None:
        if api.key != API_VERSIONS:
            raise Refused(
                "unsupported_version",
                f"{api.name} in version {head.version}, and versions 0 to {api.version_max} are understood",
            )
        # The one request whose version a client cannot know; the answer tells.
        async for _ in self._frames.pieces(head):
            pass
        await self._write(head, api, API_VERSIONS_API.response.write(UNSUPPORTED, 0))

    async def _write(self, head: Head, api: Api, body: bytes) -> None:
        flexible = api.response.is_flexible(head.version) and api.key != API_VERSIONS
        header = _INT32.pack(head.correlation_id) + (NO_TAGS if flexible else b"")
        self._writer.writelines((_INT32.pack(len(header) + len(body)), header, body))
        await drained(self._writer, self._limits)


async def _whole(content: bytes) -> AsyncIterator[bytes]:
    """One piece that is all there is."""
    yield content


def _read(head: Head, api: Api, content: bytes) -> dict[str, Any]:
    """The body of a request, behind what is left of its header."""
    flexible = api.request.is_flexible(head.version)
    reader = Reader(content, flexible=False)
    if head.key != CONTROLLED_SHUTDOWN or head.version:
        STRING.read(reader)  # the client's id, in the classic form always
        if flexible:
            reader.tags()
    return api.request.read(content[reader.at :], head.version)

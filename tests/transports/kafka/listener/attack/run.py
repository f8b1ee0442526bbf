"""One attack: a server, hostile connections from a separate process, and brokers that measure latency.

Run as `python -m tests.transports.kafka.listener.attack.run` to print the latencies of brokers under each attack.
"""

import asyncio
import contextlib
import json
import statistics
import struct
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable
from typing import Any, NamedTuple

import pytest

from kactl.transports.kafka.listener.apis import APIS
from tests.support.hostile_minutes import SECONDS
from tests.support.machine_pauses import Span, Watch, unpaused_s, watching
from tests.support.processor_time import unit_s, used_s

from .attacker import KINDS
from .server import BROKERS

_ALLOCATE_PRODUCER_IDS = 67
# Of a step of the event loop, in units of `tests.support.processor_time`: a tenth of a second where nothing else runs.
WORK_MAX = 100.0
# Time after which a broker counts a response as missing.
_ANSWER_S = 60.0
_PAUSE_S = 0.01
# Time limit of each line of a flood.
_FLOOD_S = 300.0 + 5 * SECONDS


class Server:
    """A process of `server`.

    Attributes:
        port: its listening port.
        epochs: epochs of its brokers.
    """

    def __init__(self, process: asyncio.subprocess.Process, watch: Watch, port: int, epochs: dict[int, int]) -> None:
        self.process = process
        self._watch = watch
        self.port = port
        self.epochs = epochs

    async def meters(self) -> dict[str, Any]:
        """Return the meter readings since the previous call, and `work`, the longest step in units.

        Pauses of the machine are no work.
        """
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        readings = await _line(self.process)
        pauses = self._watch.pauses()
        long = [
            (unpaused_s(work_s, Span(begin_s, end_s), pauses), step_unit_s)
            for begin_s, end_s, work_s, step_unit_s in readings["long_steps"]
        ]
        readings["work"] = max([readings["work_s"] / readings["unit_s"], *(step_s / each_s for step_s, each_s in long)])
        readings["work_s"] = max([readings["work_s"], *(step_s for step_s, _ in long)])
        return readings

    def used_s(self) -> float:
        """Return the processor time of the server so far: other processes do not lengthen what is measured by it."""
        return used_s(self.process.pid)


async def _line(process: asyncio.subprocess.Process) -> dict[str, Any]:
    assert process.stdout is not None
    async with asyncio.timeout(60):
        return json.loads(await process.stdout.readline())  # type: ignore[no-any-return]


@contextlib.asynccontextmanager
async def serving(*arguments: str) -> AsyncIterator[Server]:
    """Run a separate server until the block ends. What it prints is shown if it ends by itself."""
    errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed below
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.transports.kafka.listener.attack.server", *arguments,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=errors,
    )  # fmt: skip
    try:
        with watching() as watch:
            begun = await _line(process)
            epochs = {int(broker): epoch for broker, epoch in begun["epochs"].items()}
            yield Server(process, watch, begun["port"], epochs)
    finally:
        if process.returncode is not None:
            errors.seek(0)
            pytest.fail(f"the server has ended: {errors.read()[-4_000:].decode()}")
        process.kill()
        await process.wait()
        errors.close()


@contextlib.asynccontextmanager
async def attacking(
    server: Server, kinds: Iterable[str], addresses: Iterable[str], *, connections: int, seconds: float = 60.0
) -> AsyncIterator[None]:
    """Run hostile connections until the block ends. Each has been attempted once when the block begins."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.transports.kafka.listener.attack.attacker",
        str(server.port), str(connections), str(seconds), ",".join(kinds), ",".join(addresses),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            assert await process.stdout.readline() == b"begun\n"
        yield
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


class Flood:
    """A fixed number of attempts from a separate process.

    Attributes:
        results: number of attempts by result; empty until all have ended.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.results: dict[str, int] = {}

    async def line(self) -> bytes:
        assert self._process.stdout is not None
        async with asyncio.timeout(_FLOOD_S):
            return await self._process.stdout.readline()

    async def run(self) -> None:
        self.results = json.loads(await self.line())


@contextlib.asynccontextmanager
async def flooding(program: str, *arguments: object) -> AsyncIterator[Flood]:
    """Run a flood, which is a program of this package, until the block ends. It has begun when the block begins."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", f"tests.transports.kafka.listener.attack.{program}", *map(str, arguments),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        flood = Flood(process)
        assert await flood.line() == b"begun\n"
        yield flood
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


class Seen(NamedTuple):
    """Latencies of the responses to a broker, and the number of missing responses.

    Attributes:
        answered: in units of the processor time of the server.
    """

    answered: list[float]
    unanswered: int

    @property
    def p99(self) -> float:
        if len(self.answered) < 2:
            return float("inf")
        return statistics.quantiles(self.answered, n=100, method="inclusive")[98]


class BrokerPeer:
    """A broker that requests producer ids continuously.

    Args:
        keeps: whether it keeps its connection. Otherwise each request opens a new one and sends ApiVersions first.
    """

    def __init__(self, server: Server, broker: int, *, keeps: bool) -> None:
        self._server = server
        self._body = _frame(_ALLOCATE_PRODUCER_IDS, 0, {"broker_id": broker, "broker_epoch": server.epochs[broker]})
        self._host = BROKERS[broker]
        self._keeps = keeps
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, requests: int) -> Seen:
        seen: list[float] = []
        unanswered = 0
        for _ in range(requests):
            begun_s = self._server.used_s()
            try:
                async with asyncio.timeout(_ANSWER_S):
                    await self._until_answered()
                seen.append((self._server.used_s() - begun_s) / unit_s())
            except TimeoutError:
                unanswered += 1
                self._close()
            if not self._keeps:
                self._close()
            await asyncio.sleep(_PAUSE_S)
        self._close()
        return Seen(seen, unanswered)

    async def _until_answered(self) -> None:
        """Send until a response arrives. A broker whose connection is closed reconnects, as Kafka's brokers do."""
        while True:
            try:
                await self._once()
                return
            except TimeoutError:
                raise
            except (OSError, asyncio.IncompleteReadError):
                self._close()
                await asyncio.sleep(_PAUSE_S)

    async def _once(self) -> None:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._server.port, local_addr=(self._host, 0))
            await self._answered(_frame(18, 0, {}))
        answer = await self._answered(self._body)
        assert APIS[_ALLOCATE_PRODUCER_IDS].response.read(answer[5:], 0)["error_code"] == 0

    async def _answered(self, frame: bytes) -> bytes:
        assert self._streams is not None
        reader, writer = self._streams
        writer.write(frame)
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        return await reader.readexactly(size)

    def _close(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None


def _frame(key: int, version: int, values: dict[str, Any]) -> bytes:
    request = APIS[key].request
    header = struct.pack(">hhi", key, version, 1) + b"\0\x06broker" + (b"\0" if request.is_flexible(version) else b"")
    content = header + request.write(values, version)
    return struct.pack(">i", len(content)) + content


async def brokers_see(server: Server, *, requests: int = 150) -> dict[str, Seen]:
    """Measure two brokers concurrently: with a persistent connection, and with a new one for each request."""
    peers = {
        f"broker {broker}, {'kept' if keeps else 'new'}": BrokerPeer(server, broker, keeps=keeps)
        for broker, keeps in ((1, True), (2, False), (3, True), (3, False))
    }
    seen = await asyncio.gather(*(peer.ask(requests) for peer in peers.values()))
    return dict(zip(peers, seen, strict=True))


async def main() -> None:
    others = ["127.0.0.2", *(f"127.0.1.{number}" for number in range(1, 20))]
    chosen = sys.argv[1:] or list(KINDS)
    plans: list[tuple[tuple[str, ...], list[str]]] = [((), others)]
    plans += [((kind,), addresses) for kind in chosen for addresses in (["127.0.0.1"], others)]
    plans += [(tuple(chosen), ["127.0.0.1", *others])]
    for kinds, addresses in plans:
        async with serving() as server, contextlib.AsyncExitStack() as stack:
            before = await server.meters()
            if kinds:
                await stack.enter_async_context(attacking(server, kinds, addresses, connections=1000))
            seen = await brokers_see(server)
            after = await server.meters()
            ms = {name: round(after[f"{name}_s"] * 1000) for name in ("hold", "work", "collect")}
            print(
                f"{'+'.join(kinds) or 'no attack':16.16} from {len(addresses):2} addresses: p99",
                " ".join(f"{result.p99:5.0f}" for result in seen.values()),
                f"units, unanswered {sum(result.unanswered for result in seen.values())}, longest steps in ms {ms},",
                f"rss +{(after['rss_max'] - before['rss']) >> 20} MiB, {after['cpu_s']:.1f} s of processor,",
                f"{after['connections']} connections, refused {after['refused']}",
                flush=True,
            )


if __name__ == "__main__":
    asyncio.run(main())

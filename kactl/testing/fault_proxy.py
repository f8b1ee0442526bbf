"""Proxy in front of any TCP port, whose connections break, hang, slow down or arrive in pieces.

    client ──▶ proxy ──up──▶ target
           ◀──down──

Bytes of one direction of one connection always keep their order. Faults may be changed at any moment and apply to open
connections, too. As a program, for other processes:

    python -m kactl.testing.fault_proxy --to 127.0.0.1:7373        prints the address of the proxy

It reads commands from its input, one a line: `freeze up`, `throttle down 100000`, `cut`, `refuse`, `heal`. It ends with
its input.
"""

import argparse
import asyncio
import random
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Final, Literal, Self

Direction = Literal["up", "down"]
DIRECTIONS: Final[tuple[Direction, Direction]] = ("up", "down")
# Small buffers, so that a slow or frozen proxy holds back its peers as a slow network does.
_BUFFER: Final = 65_536
# A slow direction forwards this many pieces per second.
_PIECES_PER_S: Final = 50


class Faults:
    """Faults of one direction.

    Attributes:
        delay_ms: each piece is delayed by a uniform time between the two values.
        bytes_per_s: how fast bytes pass; None for as fast as possible.
        piece: the largest number of bytes that arrive at once; each piece has a random length up to it.
        frozen: nothing passes; the connections stay open.
        cut_after: the connection breaks after so many more bytes, possibly in the middle of a message.
    """

    def __init__(self) -> None:
        self.heal()

    def heal(self) -> None:
        """Remove all faults."""
        self.delay_ms: tuple[float, float] = (0, 0)
        self.bytes_per_s: int | None = None
        self.piece: int = _BUFFER
        self.frozen = False
        self.cut_after: int | None = None


class FaultProxy:
    """A proxy that runs until the end of its block.

        async with FaultProxy("127.0.0.1", 7373, rng=random.Random(7)) as proxy:
            network = kactl.TcpNetwork(controllers=[proxy.address])
            proxy.freeze("up")

    Args:
        target: host and port, or a function that returns them for each connection.
        rng: source of delays and lengths of pieces.

    Attributes:
        faults: of each direction.
        refuses: new connections are reset at once.
        accepted: number of connections so far.
    """

    def __init__(
        self,
        target: tuple[str, int] | Callable[[], tuple[str, int]],
        *,
        rng: random.Random | None = None,
        listen: tuple[str, int] = ("127.0.0.1", 0),
    ) -> None:
        self.faults: dict[Direction, Faults] = {direction: Faults() for direction in DIRECTIONS}
        self.refuses = False
        self.accepted = 0
        self._target = target
        self._rng = rng or random.Random(0)
        self._listen = listen
        self._server: asyncio.Server | None = None
        self._changed = asyncio.Event()
        self._open: dict[asyncio.StreamWriter, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)  # accepted sockets inherit it
        listening.bind(self._listen)
        self._server = await asyncio.start_server(self._accepted, sock=listening, limit=_BUFFER)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    @property
    def address(self) -> str:
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"{host}:{port}"

    # -- faults --------------------------------------------------------------------------------------------------------

    def cut(self) -> None:
        """Break all open connections."""
        for writer in tuple(self._open):
            writer.transport.abort()

    def freeze(self, *directions: Direction) -> None:
        """Let nothing pass in some directions, or in both. The connections stay open."""
        for direction in directions or DIRECTIONS:
            self.faults[direction].frozen = True

    def throttle(self, bytes_per_s: int, *directions: Direction) -> None:
        """Let bytes pass slowly in some directions, or in both."""
        for direction in directions or DIRECTIONS:
            self.faults[direction].bytes_per_s = bytes_per_s

    def refuse(self) -> None:
        """Break all connections, and reset new ones."""
        self.refuses = True
        self.cut()

    def heal(self) -> None:
        """Remove all faults."""
        self.refuses = False
        for faults in self.faults.values():
            faults.heal()
        self._changed.set()
        self._changed = asyncio.Event()

    # -- connections ---------------------------------------------------------------------------------------------------

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if not self.refuses:
                await self._connect(reader, writer)
        except OSError:
            pass  # the target is gone: so is this connection
        finally:
            writer.transport.abort()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = self._target() if callable(self._target) else self._target
        there, onward = await asyncio.open_connection(sock=await _connected(host, port), limit=_BUFFER)
        self._open[writer] = self._open[onward] = None
        pumps = [
            asyncio.ensure_future(self._pump(self.faults["up"], reader, onward)),
            asyncio.ensure_future(self._pump(self.faults["down"], there, writer)),
        ]
        try:
            ended, _ = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            if all(pump.exception() is None and not pump.result() for pump in ended):
                # One side has ended its direction: the other may still send the reason.
                await asyncio.wait(pumps, timeout=1)
        finally:
            for pump in pumps:
                pump.cancel()
            for end in (writer, onward):
                del self._open[end]
                end.transport.abort()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(self, faults: Faults, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Forward bytes until their end. Returns whether the connection has to break."""
        writer.transport.set_write_buffer_limits(high=0)
        while data := await reader.read(self._piece(faults)):
            delay_ms = self._rng.uniform(*faults.delay_ms)
            if faults.bytes_per_s is not None:
                delay_ms += 1000 * len(data) / faults.bytes_per_s
            if delay_ms:
                await asyncio.sleep(delay_ms / 1000)
            while faults.frozen:
                await self._changed.wait()
            if faults.cut_after is not None:
                faults.cut_after -= len(data)
                if faults.cut_after < 0:
                    writer.write(data[: len(data) + faults.cut_after])
                    with suppress(OSError):
                        await writer.drain()
                    faults.cut_after = None
                    return True
            writer.write(data)
            await writer.drain()
        writer.write_eof()
        return False

    def _piece(self, faults: Faults) -> int:
        """Returns how many bytes to read at once."""
        most = faults.piece
        if faults.bytes_per_s is not None:
            most = max(1, min(most, faults.bytes_per_s // _PIECES_PER_S))
        return most if most == _BUFFER else self._rng.randint(1, most)


async def _connected(host: str, port: int) -> socket.socket:
    connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        await asyncio.get_running_loop().sock_connect(connection, (host, port))
    except BaseException:
        connection.close()
        raise
    return connection


# -- the program -------------------------------------------------------------------------------------------------------


def carry_out(proxy: FaultProxy, line: str) -> None:
    """Carry out one command of the program.

    Raises:
        ValueError: it is none.
    """
    command, *arguments = line.split()
    directions: list[Direction] = [direction for direction in DIRECTIONS if direction in arguments]
    numbers = [int(argument) for argument in arguments if argument not in DIRECTIONS]
    match command, numbers:
        case "freeze", []:
            proxy.freeze(*directions)
        case "throttle", [bytes_per_s]:
            proxy.throttle(bytes_per_s, *directions)
        case (("cut" | "refuse" | "heal"), []):
            {"cut": proxy.cut, "refuse": proxy.refuse, "heal": proxy.heal}[command]()
        case _:
            raise ValueError(f"{line.strip()!r} is no command: freeze, throttle, cut, refuse or heal")


async def _run(read_line: Callable[[], Awaitable[str]], to: str, listen: str) -> None:
    host, _, port = to.rpartition(":")
    own_host, _, own_port = listen.rpartition(":")
    async with FaultProxy((host, int(port)), listen=(own_host, int(own_port))) as proxy:
        sys.stdout.write(f"{proxy.address}\n")
        sys.stdout.flush()
        while line := await read_line():
            try:
                carry_out(proxy, line)
            except ValueError as error:
                sys.stderr.write(f"{error}\n")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m kactl.testing.fault_proxy", description=__doc__)
    parser.add_argument("--to", required=True, metavar="HOST:PORT")
    parser.add_argument("--listen", default="127.0.0.1:0", metavar="HOST:PORT")
    arguments = parser.parse_args()

    async def read_line() -> str:
        return await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)

    asyncio.run(_run(read_line, arguments.to, arguments.listen))


if __name__ == "__main__":
    main()

"""Chat rooms over websockets: each room is kept by one of several processes, and any process accepts clients.

    python examples/controller.py 127.0.0.1:7373 cluster.db
    NODE=1 PORT=8081 python examples/websocket_fanout.py 127.0.0.1:7373     # and NODE=2 PORT=8082, NODE=3 PORT=8083

A client connects to `/rooms/NAME` of any process, and is redirected to the process that leads the room's partition. The
routes come from a spectator, which knows when a leader is ready. `/health/roles/rooms/3` is a health check for load
balancers.
"""

import os
import sys
import zlib
from collections import defaultdict
from typing import ClassVar

import anyio
from aiohttp import WSMsgType, web

import kactl

PARTITIONS = 8
PORT = int(os.environ.get("PORT", "8080"))


class Rooms(kactl.PartitionHandler):
    """The rooms of one partition; `led` has those that this process leads."""

    led: ClassVar[dict[int, "Rooms"]] = {}

    async def lead(self, leader: kactl.Leader) -> None:
        self.leader, self.clients = leader, defaultdict[str, set[web.WebSocketResponse]](set)
        self.led[self.partition.partition] = self
        print(f"leads {self.partition}", flush=True)
        try:
            await anyio.sleep_forever()
        finally:
            del self.led[self.partition.partition]
            for websocket in {client for room in self.clients.values() for client in room}:
                await websocket.close()  # the client connects again, and is redirected

    async def join(self, room: str, websocket: web.WebSocketResponse) -> None:
        self.clients[room].add(websocket)
        try:
            async for message in websocket:
                if message.type is WSMsgType.TEXT:
                    self.leader.check()  # two processes never both relay the messages of a room
                    for client in tuple(self.clients[room]):
                        await client.send_str(message.data)
        finally:
            self.clients[room].discard(websocket)


def application(node: kactl.Participant, spectator: kactl.Spectator) -> web.Application:
    async def room(request: web.Request) -> web.StreamResponse:
        name = request.match_info["room"]
        partition = zlib.crc32(name.encode()) % PARTITIONS
        rooms = Rooms.led.get(partition)
        if rooms is not None:
            websocket = web.WebSocketResponse()
            await websocket.prepare(request)
            await rooms.join(name, websocket)
            return websocket
        route = spectator.leader("rooms", partition, max_age_ms=10_000)
        if route is None or not route.ready or route.endpoint is None or route.leader == node.id:
            raise web.HTTPServiceUnavailable(headers={"Retry-After": "1"}, text="the room is moving")
        raise web.HTTPTemporaryRedirect(f"http://{route.endpoint.host}:{route.endpoint.port}/rooms/{name}")

    app = web.Application()
    app.router.add_get("/rooms/{room}", room)
    app.add_subapp("/health", kactl.admin.roles(node, prefix="/health"))
    return app


async def main(*controllers: str) -> None:
    network = kactl.TcpNetwork(controllers=controllers)
    here = (kactl.model.Endpoint("websocket", "127.0.0.1", PORT),)
    async with (
        kactl.Participant(int(os.environ["NODE"]), network=network, handler=Rooms, endpoints=here) as node,
        kactl.Spectator(network=network, topics=["rooms"]) as spectator,
    ):
        await node.ensure_topic("rooms", partitions=PARTITIONS, kind="ownership")
        runner = web.AppRunner(application(node, spectator))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", PORT).start()
        print(f"serves at port {PORT}", flush=True)
        try:
            await anyio.sleep_forever()
        finally:
            await runner.cleanup()


if __name__ == "__main__":
    kactl.run(main, *sys.argv[1:])

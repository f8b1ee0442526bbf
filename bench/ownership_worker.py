"""Worker of `bench.ownership`: a process that owns shards, by one of the rivals.

    python -m bench.ownership_worker kactl|kafka|etcd|patroni ID ADDRESS SHARDS SESSION_MS
    python -m bench.ownership_worker controller ID ADDRESS STORE SESSION_MS

A worker prints, with times of the monotonic clock in ms, `ready <time>`, `own <shard> <time>` when it may work for a
shard, `lost <shard> <time>` when it may not any more, and `left <time>` after SIGTERM. Of kactl, SIGUSR1 takes away the
database that `lead` needs, and SIGUSR2 brings it back. A controller of kactl prints `ready`.
"""

import asyncio
import base64
import contextlib
import json
import signal
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any, Final

TOPIC: Final = "shards"
# How often a worker of Kafka's or Patroni's client looks whether it is to end.
_POLL_S: Final = 0.05


def say(*words: object) -> None:
    print(*words, f"{time.monotonic_ns() / 1e6:.3f}", flush=True)


async def until_terminated() -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()


# -- kactl -------------------------------------------------------------------------------------------------------------


async def kactl_worker(number: int, address: str, shards: int, session_ms: int) -> None:
    import kactl

    away, back = asyncio.Event(), asyncio.Event()
    back.set()

    def database(is_there: bool) -> None:
        (back if is_there else away).set()
        (away if is_there else back).clear()

    class Shard(kactl.PartitionHandler):
        async def lead(self, leader: kactl.Leader) -> None:
            if away.is_set():
                raise ConnectionRefusedError("the database is away")
            say("own", self.partition.partition)
            try:
                await away.wait()
                raise ConnectionRefusedError("the database has gone away")
            finally:
                say("lost", self.partition.partition)

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, database, False)
    loop.add_signal_handler(signal.SIGUSR2, database, True)
    async with kactl.Participant(
        number, network=kactl.TcpNetwork(controllers=[address]), handler=Shard, session_timeout_ms=session_ms
    ) as worker:
        await worker.ensure_topic(TOPIC, partitions=shards, kind="ownership", timeout_ms=60_000)
        say("ready")
        await until_terminated()


async def controller(number: int, address: str, path: str, session_ms: int) -> None:
    import kactl

    store = kactl.SqliteStore(path, session_timeout_ms=session_ms)
    async with kactl.Controller(number, store=store, network=kactl.TcpNetwork(listen=address)):
        say("ready")
        await until_terminated()


# -- a consumer group of Kafka ---------------------------------------------------------------------------------------


def kafka_worker(number: int, address: str, session_ms: int) -> None:
    from confluent_kafka import Consumer, TopicPartition

    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "client.id": f"worker-{number}",
            "group.id": "workers",
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": session_ms,
            "heartbeat.interval.ms": session_ms // 3,
            "auto.offset.reset": "earliest",
        }
    )

    def assigned(consumer: Consumer, partitions: Iterable[TopicPartition]) -> None:
        consumer.incremental_assign(list(partitions))
        for each in partitions:
            say("own", each.partition)

    def revoked(consumer: Consumer, partitions: Iterable[TopicPartition]) -> None:
        for each in partitions:
            say("lost", each.partition)
        consumer.incremental_unassign(list(partitions))

    consumer.subscribe([TOPIC], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
    say("ready")
    while not stop.is_set():
        consumer.poll(_POLL_S)
    consumer.close()


# -- an election of etcd for each shard --------------------------------------------------------------------------------


async def etcd_worker(number: int, address: str, shards: int, session_ms: int) -> None:
    """Campaign for all shards by etcd's own election service, under one lease."""
    import aiohttp

    def text(value: str) -> str:
        return base64.b64encode(value.encode()).decode()

    async with aiohttp.ClientSession(
        address, connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None)
    ) as session:

        async def call(path: str, **body: Any) -> dict[str, Any]:
            async with session.post(f"/v3/{path}", json=body) as response:
                response.raise_for_status()
                # A stream of keep-alives has one response here.
                line = await response.content.readline() if path == "lease/keepalive" else await response.read()
                found: dict[str, Any] = json.loads(line)
                return found

        lease = (await call("lease/grant", TTL=session_ms // 1000))["ID"]

        async def renew() -> None:
            while True:
                await asyncio.sleep(session_ms / 3_000)
                await call("lease/keepalive", ID=lease)

        async def campaign(shard: int) -> None:
            await call("election/campaign", name=text(f"{TOPIC}/{shard}"), lease=lease, value=text(str(number)))
            say("own", shard)
            owned.add(shard)

        owned: set[int] = set()
        tasks = [asyncio.create_task(renew()), *(asyncio.create_task(campaign(shard)) for shard in range(shards))]
        say("ready")
        await until_terminated()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for shard in sorted(owned):
            say("lost", shard)
        await call("lease/revoke", ID=lease)


# -- leader locks of Patroni -------------------------------------------------------------------------------------------


def patroni_worker(number: int, address: str, shards: int, session_ms: int) -> None:
    """One lock for each shard, each in a thread that does what Patroni's loop does with its leader key."""
    from patroni.dcs import get_dcs  # type: ignore[import-not-found,unused-ignore]

    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    ttl_s = session_ms // 1000

    def lock(shard: int) -> None:
        name = f"worker-{number}"
        dcs = get_dcs(
            {
                "etcd3": {"host": address.removeprefix("http://")},
                "scope": f"{TOPIC}-{shard}",
                "namespace": "/service",
                "name": name,
                "ttl": ttl_s,
                "loop_wait": max(1, ttl_s // 3),
                "retry_timeout": max(1, ttl_s // 3),
            }
        )
        owns, until, version = False, 0.0, None
        while not stop.is_set():
            began = time.monotonic()
            try:
                cluster = dcs.get_cluster()
                leader = cluster.leader
                version = None if leader is None else leader.version
                if leader is None or not leader.name:
                    is_held = dcs.attempt_to_acquire_leader()
                else:
                    is_held = leader.name == name and dcs.update_leader(cluster, None)
                until = began + ttl_s if is_held else 0.0
            except Exception as error:
                print(f"{name}, shard {shard}: {type(error).__name__}: {error}", flush=True)
                is_held = owns and time.monotonic() < until
            if is_held != owns:
                owns = is_held
                say("own" if owns else "lost", shard)
            deadline = time.monotonic() + max(1, ttl_s // 3)
            while not stop.is_set() and (left_s := deadline - time.monotonic()) > 0:
                if dcs.watch(version, min(left_s, 0.5)):
                    break
        if owns:
            say("lost", shard)
            leader = dcs.get_cluster().leader
            if leader is not None:
                dcs.delete_leader(leader)

    threads = [threading.Thread(target=lock, args=(shard,)) for shard in range(shards)]
    for thread in threads:
        thread.start()
    say("ready")
    for thread in threads:
        thread.join()


def main(kind: str, number: int, address: str, argument: str, session_ms: int) -> None:
    if kind == "controller":
        asyncio.run(controller(number, address, argument, session_ms))
        return
    shards = int(argument)
    match kind:
        case "kactl":
            asyncio.run(kactl_worker(number, address, shards, session_ms))
        case "kafka":
            kafka_worker(number, address, session_ms)
        case "etcd":
            with contextlib.suppress(asyncio.CancelledError):
                asyncio.run(etcd_worker(number, address, shards, session_ms))
        case "patroni":
            patroni_worker(number, address, shards, session_ms)
    say("left")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4], int(sys.argv[5]))

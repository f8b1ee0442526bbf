"""A commit, a takeover and a broker failure over etcd, ZooKeeper and SQLite, in turn.

    python -m bench.stores [--sizes 10000,100000] [--stores sqlite,zookeeper,etcd] [--writes 10000] [--runs 5] [--full]

All stores are filled with the same cluster first. Then they take turns, so that other load affects all of them:

* `commit`: new leadership of partitions spread over all topics, by compare-and-set with a fence, in one call.
* `takeover`: a complete controller without a copy, from the resignation of its predecessor to the bytes of the last
  request.
* `failure`: of one of thirty brokers, from the event to the last response of a broker. How soon a store reports the end
  of a session is not part of it.

Brokers respond immediately, without a network. ZooKeeper and etcd are one server each, on loopback; SQLite is part of
this process.
"""

import argparse
import time
from contextlib import AsyncExitStack
from typing import Final, NamedTuple

from bench import goals
from bench.brokers import Encoding
from bench.clusters import Shape
from bench.failover import BROKERS, HOLDER, PARTITIONS_OF_A_TOPIC, STANDBY, Clocked
from bench.figures import Found
from bench.hosting import SESSION_MS, Opener, backing, collecting, load, quiet, registered, until
from bench.run import main, module, numbers, say, words
from bench.store import committed, next_write, some_names
from bench.tables import number, plain
from kactl.actors.system import Controller
from kactl.decide.messages.log import ElectionEvent
from kactl.stores.base import Session, Store

NAME: Final = "stores"
KINDS: Final = ("sqlite", "zookeeper", "etcd")
SIZES: Final = (10_000,)
FULL_SIZES: Final = (10_000, 100_000)
FIGURES: Final = ("commit", "takeover", "failure")
# Time limit of each wait.
LIMIT_S = 600


class Filled(NamedTuple):
    """A store with a cluster. `holder` has the controllership between the measurements."""

    kind: str
    opened: Opener
    holder: Store
    sessions: list[Session]


async def filled(stack: AsyncExitStack, kind: str, shape: Shape) -> Filled:
    """Starts the backend of one kind of store and writes the cluster."""
    opened = await stack.enter_async_context(backing(kind))
    holder = await stack.enter_async_context(opened())
    await load(holder, shape, await holder.contest(HOLDER))
    return Filled(kind, opened, holder, await stack.enter_async_context(registered(holder, shape)))


async def commit(store: Filled, shape: Shape, *, writes: int) -> float:
    """Returns microseconds per row."""
    fence = await store.holder.contest(HOLDER, take_over=True)
    write = await next_write(store.holder, some_names(shape, writes))
    began = time.perf_counter()
    await committed(store.holder, write, fence)
    return (time.perf_counter() - began) * 1e6 / len(write.names)


async def takeover_and_failure(store: Filled, shape: Shape, *, broker: int) -> dict[str, float]:
    """Returns both in milliseconds. The broker registers again afterwards."""
    fence, clocked = await store.holder.contest(HOLDER, take_over=True), Clocked()
    brokers = Encoding(client_id=STANDBY, on_bytes=clocked.on_bytes)
    instance = Controller(STANDBY, store=store.opened(), transport=brokers, auto_balance=False, standby_interval_ms=0)
    async with instance, collecting(instance):
        began = time.perf_counter()
        await store.holder.resign(fence)
        await instance.wait_active(timeout_ms=LIMIT_S * 1000)
        await quiet(instance, limit_s=LIMIT_S)
        takeover = (clocked.at["told"] - began) * 1000
        assert len(instance.cluster.table) == shape.partitions

        await store.sessions[broker - 1].close()
        await until(lambda: broker not in instance.cluster.brokers, limit_s=LIMIT_S)
        await quiet(instance, limit_s=LIMIT_S)
        failure = failure_ms(instance)
        store.sessions[broker - 1] = await store.holder.new_session(SESSION_MS)
        await store.sessions[broker - 1].register(shape.registered()[broker - 1])
        await until(lambda: broker in instance.cluster.brokers, limit_s=LIMIT_S)
        await quiet(instance, limit_s=LIMIT_S)
        await store.holder.contest(HOLDER, take_over=True)
    return {"takeover": takeover, "failure": failure}


def failure_ms(instance: Controller) -> float:
    """Returns the time from the newest event that moved leadership to the last response to its requests."""
    events, _ = instance.history.read(0, kinds=("election",))
    moved = [event for event in events if isinstance(event, ElectionEvent) and event.moved]
    assert moved, "the failure of a leader moves its leaderships"
    assert moved[-1].last_ack_us is not None
    return moved[-1].last_ack_us / 1000


async def one_size(kinds: tuple[str, ...], size: int, *, writes: int, runs: int, found: Found) -> None:
    """Measures and prints one size over all stores."""
    shape = Shape(size, max(1, size // PARTITIONS_OF_A_TOPIC), BROKERS)
    async with AsyncExitStack() as stack:
        stores = [await filled(stack, kind, shape) for kind in kinds]
        for run in range(runs + 1):
            for store in stores:
                # Brokers far apart, so that few partitions lose two replicas.
                broker = 1 + run * (BROKERS // (runs + 1)) % BROKERS
                row = {"commit": await commit(store, shape, writes=writes)}
                row |= await takeover_and_failure(store, shape, broker=broker)
                for name in FIGURES if run else ():  # the first round is a warm-up
                    found.add(f"{store.kind}/{size}/{name}", "us" if name == "commit" else "ms", row[name])
    figures = found.figures()
    say(f"\n{size:,} partitions of {shape.topics:,} topics; us per row, ms, ms")
    rows = []
    for kind in kinds:
        spreads = (figures[f"{kind}/{size}/{name}"].spread for name in FIGURES)
        rows.append(
            [kind, *(f"{number(each.median)} ({number(each.least)}-{number(each.greatest)})" for each in spreads)]
        )
    say(plain(["", *FIGURES], rows))


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", type=numbers, help=f"partitions, by commas; {SIZES}, with --full {FULL_SIZES}")
    parser.add_argument("--stores", type=words, default=KINDS, help="by commas")
    parser.add_argument("--writes", type=int, default=10_000, help="partitions in one commit")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--full", action="store_true", help="the sizes of a published run")


async def measure(asked: argparse.Namespace, found: Found) -> None:
    for size in asked.sizes or (FULL_SIZES if asked.full else SIZES):
        await one_size(tuple(asked.stores), size, writes=asked.writes, runs=asked.runs, found=found)
    say(f"\n{goals.printed(found.figures(), NAME)}")


if __name__ == "__main__":
    main(module(__name__))

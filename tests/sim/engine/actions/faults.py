"""Faults of processes, of the network and of sessions. Every fault that lasts ends by itself."""

from collections.abc import Mapping
from typing import Any, Final

from tests.sim.engine import selectors
from tests.sim.engine.cluster import SimulatedCluster
from tests.sim.engine.member import Member
from tests.sim.engine.selectors import Skipped

from .tasks import begin, during, end_after

Args = Mapping[str, Any]


def _up(cluster: SimulatedCluster, args: Args) -> Member:
    member = selectors.member(cluster, args["node"])
    if not member.is_up:
        raise Skipped(f"{member.name} is down")
    return member


def kill(cluster: SimulatedCluster, args: Args) -> None:
    """`node`, `restart_after_ms`; `lossy`: share of the last epoch's records that a broker loses.

    `ends_session`: the server notices the end of the process at once, so that the next one need not wait for it.
    """
    member = _up(cluster, args)
    cluster.kill(member)
    if args.get("ends_session", False):
        cluster.world.expire_session(member.name)
        cluster.world.expire_brokers(member.name)
    if "lossy" in args:
        selectors.broker(cluster, member.name).lose_unforced(args["lossy"])
    during(cluster, "kill", member.name, args.get("restart_after_ms", 10_000), member.start)


def kill_all(cluster: SimulatedCluster, args: Args) -> None:
    """`restart_after_ms`: a time for each member in turn."""
    times = args["restart_after_ms"]
    for number, member in enumerate(cluster.members()):
        if member.is_up:
            cluster.kill(member)
        during(cluster, "kill all", member.name, times[number % len(times)], member.start)


def start_twice(cluster: SimulatedCluster, args: Args) -> None:
    """`broker`, `for_ms`: start another process with the id of a broker, and kill it at the end."""
    broker = selectors.broker(cluster, args["broker"])
    if broker.id in cluster.fleet.twins:
        raise Skipped(f"{broker.name} was started twice")
    twin = cluster.fleet.start_twin(broker.id)

    def end() -> None:
        twin.kill()
        cluster.fleet.twins.pop(broker.id, None)

    during(cluster, "start twice", broker.name, args["for_ms"], end)


def stop(cluster: SimulatedCluster, args: Args) -> None:
    """`node`, `restart_after_ms` from the end of the process on: end a process as SIGTERM does.

    A broker requests its controlled shutdown first.
    """
    member = _up(cluster, args)
    cluster.history.record("fault.begin", fault="stop", target=member.name)

    async def stopped() -> None:
        if member.name.startswith("broker"):
            await selectors.broker(cluster, member.name).shut_down()
        else:
            await member.stop()
        end_after(cluster, "stop", member.name, args.get("restart_after_ms", 10_000), member.start)

    begin(cluster, stopped(), name=f"stop {member.name}")


def pause(cluster: SimulatedCluster, args: Args) -> None:
    """`node`, `for_ms`."""
    member = _up(cluster, args)
    if not member.is_running:
        raise Skipped(f"{member.name} is paused")
    member.pause()
    during(cluster, "pause", member.name, args["for_ms"], member.resume)


def suspend(cluster: SimulatedCluster, args: Args) -> None:
    """`node`, `for_ms`: suspend a machine: its monotonic clock stands still, and all its timers are late."""
    member = _up(cluster, args)
    if not member.is_running:
        raise Skipped(f"{member.name} is paused")
    member.suspend()
    during(cluster, "suspend", member.name, args["for_ms"], member.resume)


def slow(cluster: SimulatedCluster, args: Args) -> None:
    """`node`, `delay_ms`, `for_ms`: each step takes up to `delay_ms` more."""
    member = _up(cluster, args)
    node = member.node
    assert node is not None
    cluster.loop.slow(node, args["delay_ms"])
    during(cluster, "slow", member.name, args["for_ms"], lambda: cluster.loop.slow(node, 0))


def clock(cluster: SimulatedCluster, args: Args) -> None:
    """`node`, `offset_ms` of the wall clock, `rate` of the monotonic clock, `for_ms`."""
    member = _up(cluster, args)
    node = member.node
    assert node is not None
    node.clock.wall_offset_ms += args.get("offset_ms", 0.0)
    node.clock.set_rate(args.get("rate", 1.0), cluster.loop.now_s)
    during(
        cluster, "clock", member.name, args["for_ms"], lambda: node.clock.set_rate(1.0, cluster.loop.now_s)
    )  # fmt: skip


# -- network -----------------------------------------------------------------------------------------------------------


def _directions(cluster: SimulatedCluster, args: Args) -> list[tuple[str, str]]:
    """Returns the links between `node` and `to`, or all other members; `direction` is `both`, `in` or `out`."""
    name = selectors.member(cluster, args["node"]).name
    if "to" in args:
        others = [selectors.member(cluster, args["to"]).name]
    else:
        others = [member.name for member in (*cluster.members(), *cluster.spectators)]
    links = []
    for other in others:
        if other != name:
            if args.get("direction", "both") != "in":
                links.append((name, other))
            if args.get("direction", "both") != "out":
                links.append((other, name))
    return links


def cut(cluster: SimulatedCluster, args: Args) -> None:
    """`node`, `to`, `direction`, `for_ms`: stop the messages between members. The store is reached as before.

    `deliver`: at the end the messages arrive; otherwise they are lost.
    """
    links = _directions(cluster, args)
    for source, target in links:
        cluster.links.cut(source, target, kind="network", both=False)

    def heal() -> None:
        for source, target in links:
            cluster.links.heal(source, target, kind="network", both=False, deliver=args.get("deliver", False))

    during(cluster, "cut", args["node"], args["for_ms"], heal)


def hold(cluster: SimulatedCluster, args: Args) -> None:
    """`node`, `to`, `direction`, `for_ms`: keep the next message of each link, and deliver it at the end.

    `kind`: of the messages, such as `StopReplica` or `StopReplica answer`; by default any.
    """
    channels = [cluster.network.channel(*link) for link in _directions(cluster, args)]
    for channel in channels:
        channel.hold(kind=args.get("kind", ""))

    def release() -> None:
        for channel in channels:
            channel.release()

    during(cluster, "hold", args["node"], args["for_ms"], release)


def lose(cluster: SimulatedCluster, args: Args) -> None:
    """`rate`, `for_ms`: lose messages of all links."""
    cluster.network.lose(args["rate"])
    during(cluster, "lose", "all links", args["for_ms"], lambda: cluster.network.lose(0.0))


# -- the store ---------------------------------------------------------------------------------------------------------


def expire(cluster: SimulatedCluster, args: Args) -> None:
    """`node`, `notify_after_ms`: end the sessions of a member at the server, broker registrations included.

    Until the member learns of it, it believes in its session.
    """
    member = _up(cluster, args)
    cluster.history.record("fault.begin", fault="expire", target=member.name)
    cluster.world.expire_session(member.name, notify_after_ms=args.get("notify_after_ms", 0.0))
    cluster.world.expire_brokers(member.name)


def cut_store(cluster: SimulatedCluster, args: Args) -> None:
    """`node`, `direction`, `for_ms`: cut a member from the store, not from other members. `deliver`: see `cut`."""
    member = selectors.member(cluster, args["node"])
    direction = args.get("direction", "both")
    cluster.world.cut(member.name, to_server=direction != "in", to_client=direction != "out")
    during(
        cluster,
        "cut store",
        member.name,
        args["for_ms"],
        lambda: cluster.world.heal(member.name, deliver=args.get("deliver", True)),
    )


def stop_store(cluster: SimulatedCluster, args: Args) -> None:
    """`for_ms`: stop the store's server."""
    cluster.world.stop()
    during(cluster, "stop store", "store", args["for_ms"], cluster.world.start)


def fail_store(cluster: SimulatedCluster, args: Args) -> None:
    """`rates` of the faults of `StoreFaults` by name, `for_ms`: operations and events of the store fail at random."""
    cluster.world.set_faults(args["rates"])
    during(cluster, "fail store", "store", args["for_ms"], lambda: cluster.world.set_faults({}))


VERBS: Final = {
    "kill": kill, "kill all": kill_all, "start twice": start_twice, "stop": stop, "pause": pause, "suspend": suspend,
    "slow": slow,
    "clock": clock, "cut": cut, "hold": hold, "lose": lose, "expire": expire, "cut store": cut_store,
    "stop store": stop_store, "fail store": fail_store,
}  # fmt: skip

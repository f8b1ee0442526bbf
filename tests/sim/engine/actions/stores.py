"""Faults of one kind of store: the disk and the statements of SQLite, and the servers of ZooKeeper."""

from collections.abc import Mapping
from typing import Any, Final

from tests.sim.engine import selectors
from tests.sim.engine.cluster import SimulatedCluster
from tests.sim.engine.selectors import Skipped
from tests.sim.engine.worlds.sqlite import SqliteWorld
from tests.sim.engine.worlds.zookeeper import ZooKeeperWorld
from tests.sim.engine.worlds.zookeeper.ensemble import PEERS
from tests.sim.engine.worlds.zookeeper.server import Server

from .tasks import during

Args = Mapping[str, Any]


# -- SQLite ------------------------------------------------------------------------------------------------------------


def _sqlite(cluster: SimulatedCluster) -> SqliteWorld:
    if not isinstance(cluster.world, SqliteWorld):
        raise Skipped("the store has no file")
    return cluster.world


def disk(cluster: SimulatedCluster, args: Args) -> None:
    """`state`: full or read-only; `for_ms`: the disk of all processes."""
    world = _sqlite(cluster)
    world.set_disk(args["state"])
    during(cluster, "disk", args["state"], args["for_ms"], lambda: world.set_disk("good"))


def fail_statement(cluster: SimulatedCluster, args: Args) -> None:
    """`node`, `after`: after that many more statements one fails with an I/O error, a reading one perhaps."""
    member = selectors.member(cluster, args["node"])
    _sqlite(cluster).fail_statement(member.name, args["after"])
    cluster.history.record("fault.begin", fault="fail statement", target=member.name)


def fail_commits(cluster: SimulatedCluster, args: Args) -> None:
    """`node`, `count`, `done`: the next commits fail with an I/O error; `done`: they take effect nevertheless."""
    member = selectors.member(cluster, args["node"])
    _sqlite(cluster).fail_commits(member.name, args["count"], done=args["done"])
    cluster.history.record("fault.begin", fault="fail commits", target=member.name)


def die_in_transaction(cluster: SimulatedCluster, args: Args) -> None:
    """`node`, `statements`, `restart_after_ms`: kill a process within its next transaction, after some statements."""
    member = selectors.member(cluster, args["node"])
    _sqlite(cluster).kill_in_transaction(member.name, args["statements"])
    during(cluster, "die in transaction", member.name, args["restart_after_ms"], member.start)


def restart_machine(cluster: SimulatedCluster, args: Args) -> None:
    """`restart_after_ms`: a time for each member in turn. The host restarts; its files are kept."""
    world, times = _sqlite(cluster), args["restart_after_ms"]
    for number, member in enumerate(cluster.members()):
        if member.is_up:
            cluster.kill(member)
        during(cluster, "restart machine", member.name, times[number % len(times)], member.start)
    world.reboot()


def slow_jobs(cluster: SimulatedCluster, args: Args) -> None:
    """`node`, `job_ms`, `for_ms`: each job of a member takes up to `job_ms`."""
    world, member = _sqlite(cluster), selectors.member(cluster, args["node"])
    world.slow(member.name, (0.0, args["job_ms"]))
    during(cluster, "slow jobs", member.name, args["for_ms"], lambda: world.slow(member.name))


# -- ZooKeeper ---------------------------------------------------------------------------------------------------------


def _zookeeper(cluster: SimulatedCluster) -> ZooKeeperWorld:
    if not isinstance(cluster.world, ZooKeeperWorld):
        raise Skipped("the store has no servers")
    return cluster.world


def _server(world: ZooKeeperWorld, number: int) -> Server:
    """Returns a server; number 0 is the leader."""
    leader = world.ensemble.leader
    if number == 0 and leader is None:
        raise Skipped("no server leads")
    return leader if number == 0 and leader is not None else world.servers[number % len(world.servers)]


def crash_server(cluster: SimulatedCluster, args: Args) -> None:
    """`server`: a number, 0 for the leader; `for_ms`: its process ends; applied transactions are on its disk."""
    world = _zookeeper(cluster)
    server = _server(world, args["server"])
    if not server.is_up:
        raise Skipped(f"{server.name} is down")
    world.ensemble.crash(server)
    during(cluster, "crash server", server.name, args["for_ms"], lambda: world.ensemble.start(server))


def lose_quorum(cluster: SimulatedCluster, args: Args) -> None:
    """`for_ms`: more than half of the servers end."""
    world = _zookeeper(cluster)
    down = world.servers[: len(world.servers) // 2 + 1]
    for server in down:
        if server.is_up:
            world.ensemble.crash(server)

    def start() -> None:
        for server in down:
            world.ensemble.start(server)

    during(cluster, "lose quorum", "store", args["for_ms"], start)


def elect_server(cluster: SimulatedCluster, args: Args) -> None:
    """The leader of the servers gives up, and every client is disconnected."""
    _zookeeper(cluster).elect()
    cluster.history.record("fault.begin", fault="elect server", target="store")


def cut_server(cluster: SimulatedCluster, args: Args) -> None:
    """`server`, `for_ms`: cut a server from all others; its clients reach it still."""
    world = _zookeeper(cluster)
    server = _server(world, args["server"])
    world.cut_servers(server.name)
    during(cluster, "cut server", server.name, args["for_ms"], lambda: world.heal_servers(server.name))


def lag_server(cluster: SimulatedCluster, args: Args) -> None:
    """`server`, `lag_ms`: a follower receives nothing of the leader for some time, and its clients read old states."""
    world = _zookeeper(cluster)
    server, leader = _server(world, args["server"]), world.ensemble.leader
    if leader is None or leader is server:
        raise Skipped(f"{server.name} follows no leader")
    cluster.links.channel(PEERS, leader.name, server.name).delay(args["lag_ms"])
    cluster.history.record("fault.begin", fault="lag server", target=server.name)


def reset(cluster: SimulatedCluster, args: Args) -> None:
    """`node`: the connections of a member to the servers break."""
    member = selectors.member(cluster, args["node"])
    _zookeeper(cluster).reset(member.name)
    cluster.history.record("fault.begin", fault="reset", target=member.name)


VERBS: Final = {
    "disk": disk, "fail statement": fail_statement, "fail commits": fail_commits,
    "die in transaction": die_in_transaction, "restart machine": restart_machine, "slow jobs": slow_jobs,
    "crash server": crash_server, "lose quorum": lose_quorum, "elect server": elect_server, "cut server": cut_server,
    "lag server": lag_server, "reset": reset,
}  # fmt: skip

"""A process that is forked from one with leaders: nothing leads there, and nothing that it does reaches the parent."""

import itertools
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from kactl.model import TopicPartition
from kactl.participant.leases.leader import Leader
from kactl.participant.leases.token import FencingToken
from tests.support.certificates import Authority
from tests.support.etcd_server import EtcdServer, require_etcd
from tests.support.processes import free_port
from tests.support.tree import ROOT
from tests.support.zookeeper_fixtures import jars, zookeeper
from tests.support.zookeeper_server import ZooKeeperServer

__all__ = ["jars", "zookeeper"]

PROGRAM = Path(__file__).with_name("forking_program.py")
PATIENCE_S = 240
LOST = ("check", "token", "tasks", "resign", "report")
FORKED = (
    *("is_active", "snapshot", "create_topic", "partition", "events", "store", "leadership", "ensure_topic", "restart"),
    *("enter", "kill", "routes", "another controller", "another participant"),
)
USED = [
    "valid: False",
    *(f"{name} raised LeadershipLost" for name in LOST),
    *(f"{name} raised ProcessForked" for name in FORKED),
    "child ended with 5",
    "undisturbed",
]
# Two workers of a server that has made the participant before it forked them, and by mistake gives all the same id.
PRELOADED = """
import os, sys, anyio, kactl
node = kactl.Participant(1, network=kactl.TcpNetwork(controllers=[sys.argv[1]]), handler=kactl.PartitionHandler,
                         session_timeout_ms=2_000)
READY, GO = os.pipe(), os.pipe()
async def first():
    async with node:
        await node.ensure_topic("t", assignment={0: [1]})
        os.write(READY[1], b"x")
        await anyio.to_thread.run_sync(os.read, GO[0], 1)
        print("first leads", node.leadership("t-0").token, flush=True)
async def second():
    await anyio.to_thread.run_sync(os.read, READY[0], 1)
    try:
        async with node:
            print("second is registered", flush=True)
    except kactl.KactlError as error:
        print("second:", type(error).__name__, flush=True)
    os.write(GO[1], b"x")
children = []
for main in (first, second):
    pid = os.fork()
    if pid == 0:
        if os.fork() == 0:  # as a daemon is made
            anyio.run(main)
        else:
            os.wait()
        sys.stdout.flush()
        os._exit(0)
    children.append(pid)
for pid in children:
    os.waitpid(pid, 0)
"""
CONTROLLER = """
import anyio, kactl
async def main():
    network = kactl.TcpNetwork(listen="127.0.0.1:0")
    async with kactl.Controller(100, network=network) as controller:
        await controller.wait_active()
        print(network.address, flush=True)
        await anyio.to_thread.run_sync(input)
anyio.run(main)
"""


def findings(*arguments: str) -> list[str]:
    command = [sys.executable, str(PROGRAM), *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def test_nothing_of_the_parent_can_be_used() -> None:
    assert findings("memory", "use", "briefly") == USED


def test_another_loop_and_participant_work_in_a_child() -> None:
    assert findings("memory", "begin anew", "briefly") == ["linked anew", "child ended with 5", "undisturbed"]


@pytest.mark.slow
@pytest.mark.parametrize("where", ["leader", "outside"])
@pytest.mark.parametrize("what", ["exit", "raise", "go on"])
def test_parent_is_undisturbed_by_the_end_of_a_child(tmp_path: Path, what: str, where: str) -> None:
    found = findings(str(tmp_path / "cluster.db"), what, where)

    assert found == [*(["cancelled"] if what == "go on" else []), "child ended with 1", "undisturbed"]


@pytest.mark.slow
def test_open_database_is_refused_to_a_child(tmp_path: Path) -> None:
    assert findings(str(tmp_path / "cluster.db"), "use") == USED


@pytest.mark.slow
@pytest.mark.parametrize("what", ["exit", "use"])
def test_session_with_etcd_stays_the_parents(tmp_path: Path, what: str) -> None:
    require_etcd()
    with EtcdServer(tmp_path) as server:
        found = findings(server.url, what)

    assert found == (USED if what == "use" else ["child ended with 1", "undisturbed"])


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.parametrize("what", ["exit", "use"])
def test_session_with_zookeeper_stays_the_parents(zookeeper: ZooKeeperServer, what: str) -> None:
    found = findings(f"zookeeper://{zookeeper.connect(f'/forks-{what}')}", what)

    assert found == (USED if what == "use" else ["child ended with 1", "undisturbed"])


def test_participant_made_before_a_fork_has_registrations_of_its_own_in_each_child() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CONTROLLER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as controller:
        assert controller.stdout is not None
        address = controller.stdout.readline().strip()
        command = [sys.executable, "-c", PRELOADED, address]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        controller.communicate("\n", PATIENCE_S)

    assert ran.stdout.splitlines() == ["second: BrokerIdTaken", "first leads 1.0"], ran.stderr


def overlaps(acts: list[str]) -> list[tuple[object, object]]:
    """Returns pairs of owners of one shard whose checks have passed in overlapping times."""
    times: dict[tuple[str, str, str], list[float]] = {}
    for line in acts:
        shard, pid, token, time_s = line.split()
        times.setdefault((shard, pid, token), []).append(float(time_s))
    spans = sorted((shard, min(all_s), max(all_s), pid) for (shard, pid, _), all_s in times.items())
    return [(one, next_) for one, next_ in itertools.pairwise(spans) if one[0] == next_[0] and next_[1] < one[2]]


def owners_of_members(store: str, kind: str) -> set[str]:
    """Returns the ids of the processes that have owned shards, after the first one was killed."""
    command = [sys.executable, "-m", "tests.runtime.forked_members", store, kind, f"127.0.0.1:{free_port()}"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    acts = ran.stdout.splitlines()

    assert ran.returncode == 0, ran.stderr
    assert overlaps(acts) == []
    return {line.split()[1] for line in acts}


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["named", pytest.param("unnamed", marks=pytest.mark.long), pytest.param("shards", marks=pytest.mark.long)]
)
def test_members_made_before_a_fork_never_own_a_shard_at_once_over_etcd(tmp_path: Path, kind: str) -> None:
    require_etcd()
    with EtcdServer(tmp_path) as server:
        assert len(owners_of_members(server.url, kind)) >= 2


@pytest.mark.java
@pytest.mark.slow
def test_members_made_before_a_fork_never_own_a_shard_at_once_over_zookeeper(zookeeper: ZooKeeperServer) -> None:
    store = f"zookeeper://{zookeeper.connect('/forked-members')}"

    assert len(owners_of_members(store, "shards")) >= 2


def test_leader_is_not_sent_to_another_process() -> None:
    """As an argument of a process that `multiprocessing` spawns, where its lease would never end."""
    leader = Leader(TopicPartition("t", 0), FencingToken(1, 0), isr=(1,), now_ns=int)

    with pytest.raises(TypeError, match="cannot be sent to another process: send its token"):
        pickle.dumps(leader)
    assert pickle.loads(pickle.dumps(leader.token)) == leader.token


# With uvloop, a child that becomes another program runs what is registered for forks before that.
STARTS_PROGRAMS = """
import asyncio, sys, anyio, kactl
async def main():
    network = kactl.TcpNetwork(listen="127.0.0.1:0", limits=kactl.Limits(handshake_ms=100))
    async with kactl.Controller(100, network=network):
        host, _, port = network.address.rpartition(":")
        for number in range(int(sys.argv[1])):
            await anyio.to_thread.run_sync(int)  # the loop waits for it, and for connections
            started = await asyncio.create_subprocess_exec("/bin/true")
            assert await started.wait() == 0
            reader, writer = await asyncio.open_connection(host, int(port))
            async with asyncio.timeout(20):
                while await reader.read(1_000):  # the controller closes it after the time of a handshake
                    pass
            writer.close()
        print("accepted all", flush=True)
anyio.run(main, backend_options={"use_uvloop": sys.argv[2] == "uvloop"})
"""


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_program_that_is_started_leaves_the_listener_of_its_parent_alone(loop: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STARTS_PROGRAMS, "5", loop],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )

    assert done.stdout == "accepted all\n", done.stderr


# All objects that a module may make, before a server forks its workers.
MADE_AT_IMPORT = """
import os, sys, anyio, kactl
folder, port = sys.argv[1:]
tls = kactl.Tls(ca=f"{folder}/ca.pem", cert=f"{folder}/node.pem", key=f"{folder}/node.key")
secret = b"a secret of 16 bytes"
network = kactl.TcpNetwork(listen=f"127.0.0.1:{port}", secret=secret, limits=kactl.Limits())
clients = kactl.TcpNetwork(controllers=[f"127.0.0.1:{port}"], secret=secret)
store = kactl.SqliteStore(f"{folder}/kactl.db", session_timeout_ms=2_000)
lease = kactl.LeaseConfig(watchdog="thread")
controller = kactl.Controller(100, store=store, network=network)
local = kactl.Participant(3, store=store, network=network, handler=kactl.PartitionHandler)
nodes = [kactl.Participant(n, network=clients, handler=kactl.PartitionHandler, lease=lease) for n in (1, 2)]
spectator = kactl.Spectator(network=clients)
DONE = os.pipe()
async def control():
    tls.client_context(), tls.reload()
    async with controller, local:
        await anyio.to_thread.run_sync(os.read, DONE[0], 1)
        await anyio.to_thread.run_sync(os.read, DONE[0], 1)
        print("controller ends", flush=True)
async def work(node):
    async with node, spectator:
        await node.ensure_topic(f"t{node.id}", assignment={0: [node.id]})
        await spectator.wait_ready()
        while spectator.leader(f"t{node.id}", 0) is None:
            await anyio.sleep(0.05)
        leader = None
        while leader is None:
            leader = node.leadership(f"t{node.id}-0")
            await anyio.sleep(0.05)
        leader.check()
        print("worker", node.id, "leads", flush=True)
        os.write(DONE[1], b"x")
children = []
for main in (control, lambda: work(nodes[0]), lambda: work(nodes[1])):
    pid = os.fork()
    if pid == 0:
        anyio.run(main)
        sys.stdout.flush()
        os._exit(0)
    children.append(pid)
print(sorted(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children), flush=True)
"""


def test_everything_that_was_made_before_a_fork_works_in_each_child(tmp_path: Path) -> None:
    Authority(tmp_path, "ca").sign("node")
    command = [sys.executable, "-c", MADE_AT_IMPORT, str(tmp_path), str(free_port())]

    ran = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    found = ran.stdout.splitlines()
    assert sorted(found) == ["[0, 0, 0]", "controller ends", "worker 1 leads", "worker 2 leads"], ran.stderr


# A fork that Python does not notice, as by a library in C.
FORKED_IN_C = """
import ctypes, os, anyio, kactl
async def main():
    async with (
        kactl.Controller(0) as controller,
        kactl.Participant(1, network=controller.hub, handler=kactl.PartitionHandler) as node,
    ):
        await node.ensure_topic("t", assignment={0: [1]})
        leader = None
        while leader is None:
            leader = node.leadership("t-0")
            await anyio.sleep(0.05)
        leader.check()
        pid = ctypes.CDLL(None).fork()
        if pid == 0:
            found = [str(leader.is_valid)]
            for use in (leader.check, lambda: leader.token, lambda: node.leadership("t-0"), lambda: leader.tasks):
                try:
                    use()
                    found.append("used")
                except kactl.KactlError as error:
                    found.append(type(error).__name__)
            os.write(1, (" ".join(found) + "\\n").encode())
            os._exit(0)
        os.waitpid(pid, 0)
        leader.check()
        print("the parent leads", flush=True)
anyio.run(main)
"""


def test_leadership_is_not_valid_in_a_process_that_was_forked_in_c() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", FORKED_IN_C], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )

    lost = "LeadershipLost"
    assert ran.stdout.splitlines() == [f"False {lost} {lost} ProcessForked {lost}", "the parent leads"], ran.stderr

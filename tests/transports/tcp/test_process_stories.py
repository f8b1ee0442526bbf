"""Courses of events with processes, over each store. SIGKILL kills them, SIGSTOP stops them."""

import itertools
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.etcd_server import EtcdServer, require_etcd
from tests.support.zookeeper_fixtures import jars, zookeeper
from tests.support.zookeeper_server import ZooKeeperEnsemble

from .process_cluster import CONTROLLERS, NAMES, PATIENCE_S, Cluster, Proxy, three_participants, until

__all__ = ["jars", "zookeeper"]

pytestmark = pytest.mark.slow

# Participants that do not follow are out of the ISR soon.
SHORT_LAG = ["--lag-ms", "2000"]
_clusters = itertools.count(1)


class Place(NamedTuple):
    """A store for the processes of one test.

    Attributes:
        server: address of the server, for a proxy; empty for a file.
        through: returns what a process takes that reaches the server at another address.
    """

    store: str
    server: str = ""
    through: Callable[[str], str] = str


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    require_etcd()
    with EtcdServer(tmp_path_factory.mktemp("etcd")) as server:
        yield server


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """The store that the test names, empty."""
    name = f"stories-{next(_clusters)}"
    match request.param:
        case "zookeeper":
            chroot, zookeeper = f"/{name}", request.getfixturevalue("zookeeper")
            return Place(
                f"zookeeper:{zookeeper.connect(chroot)}",
                f"127.0.0.1:{zookeeper.port}",
                lambda address: f"zookeeper:{address}{chroot}",
            )
        case "etcd":
            etcd = request.getfixturevalue("etcd")
            return Place(
                f"etcd:{name}@{etcd.url}", f"127.0.0.1:{etcd.port}", lambda address: f"etcd:{name}@http://{address}"
            )
    return Place(f"sqlite:{tmp_path / 'kactl.db'}")


def over(*kinds: str, kept: str) -> pytest.MarkDecorator:
    """Returns the mark of a test that runs over several stores; those that are not `kept` are left to `make truth`."""
    marks = {"sqlite": [], "zookeeper": [pytest.mark.interop, pytest.mark.java], "etcd": [pytest.mark.interop]}
    long = [pytest.mark.long]
    cases = [pytest.param(kind, marks=marks[kind] + (long if kind not in kept.split() else [])) for kind in kinds]
    return pytest.mark.parametrize("place", cases, indirect=True)


@pytest.fixture
def close() -> Iterator[list[Cluster]]:
    """Clusters to be closed after the test."""
    clusters: list[Cluster] = []
    yield clusters
    for cluster in clusters:
        cluster.close()


# -- cut off -----------------------------------------------------------------------------------------------------------


@over("zookeeper", "etcd", kept="etcd")
@pytest.mark.parametrize("fault", ["refuse", "freeze"])
def test_leader_without_store_and_controller_stops_first(
    place: Place, fault: str, tmp_path: Path, close: list[Cluster]
) -> None:
    """A leader is cut off from the store and from the controllers. `lease_lost` and the end of `lead` precede the next
    leader. Afterwards, another leader and the active controller are killed."""
    cluster = Cluster(tmp_path, "store", place.store)
    close.append(cluster)
    for node in CONTROLLERS:
        cluster.start_controller(node)
    for broker in (1, 2):
        cluster.start_participant(broker)
    behind = [cluster.proxy(address) for address in cluster.addresses.values()]
    to_store = cluster.proxy(place.server)
    cluster.start_participant(3, "--participant-store", place.through(to_store.address), behind=behind)
    cluster.until_led(1, 2, 3)
    cluster.until_in_sync(1, 2, 3)
    cut = cluster.led_now(3)

    for proxy in (*behind, to_store):
        proxy.tell(fault)
    cluster.until_led(1, 2)

    cluster.check_stopped_first(3, cut)
    for proxy in (*behind, to_store):
        proxy.tell("heal")
    cluster.until_in_sync(1, 2, 3)

    active = cluster.active()
    cluster.controllers[active].kill()
    cluster.kill(1)
    until(lambda: cluster.leaders().keys() == set(NAMES) and 1 not in cluster.leaders().values(), "2 and 3 lead")
    cluster.check_disjoint()


@pytest.mark.long
@pytest.mark.interop
def test_server_without_its_leader_serves_a_leader(jars: str, tmp_path: Path, close: list[Cluster]) -> None:
    """A participant is connected to a follower of an ensemble whose connection to its leader falls silent. The follower
    responds to pings and reads, but the session expires: leases must not count them."""
    cluster = Cluster(tmp_path, "store")
    close.append(cluster)
    between: list[Proxy] = []

    def through(address: str) -> str:
        between.append(cluster.proxy(address))
        return between[-1].address

    with ZooKeeperEnsemble(tmp_path / "ensemble", through, sync_ticks=240) as ensemble:
        cluster.store = f"zookeeper:{ensemble.connect('/stories')}"
        follower = ensemble.members[2]
        assert follower.mode() == "follower"
        for node in CONTROLLERS:
            cluster.start_controller(node)
        for broker in (1, 2):
            cluster.start_participant(broker)
        cluster.start_participant(3, "--participant-store", f"zookeeper:{follower.connect('/stories')}")
        cluster.until_led(1, 2, 3)
        cluster.until_in_sync(1, 2, 3)
        cut = cluster.led_now(3)

        for proxy in between:
            proxy.tell("freeze")
        cluster.until_led(1, 2)
        assert follower.mode() == "follower"

        cluster.check_stopped_first(3, cut)
        for proxy in between:
            proxy.tell("heal")
        cluster.until_in_sync(1, 2, 3)
        cluster.check_disjoint()


@pytest.mark.long
def test_leader_without_controllers_is_evicted_before_the_next_one_begins(tmp_path: Path, close: list[Cluster]) -> None:
    """A leader whose session is with the store is moved while the controllers cannot reach it: it leads on."""
    cluster = three_participants(tmp_path, "store", options=["--drain", "3"])
    close.append(cluster)
    cluster.until_led(1, 2, 3)
    cluster.until_in_sync(1, 2, 3)
    moved = cluster.led_now(3).keys()

    for proxy in cluster.proxies:
        proxy.tell("freeze")
    controller = cluster.controllers[cluster.active()]
    controller.signal(signal.SIGUSR2)
    cluster.until_led(1, 2)

    assert "broker 3 has not reported the end of its leaderships" in controller.text
    followed = {earlier.name for earlier, _ in cluster.successions() if earlier.broker == 3}
    assert followed == moved
    cluster.check_disjoint()


# -- a store that is away ----------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.interop
def test_leaderships_resume_when_the_store_returns(etcd: EtcdServer, tmp_path: Path, close: list[Cluster]) -> None:
    """All leases lapse while the store is away. The sessions have not ended: nothing is elected."""
    cluster = three_participants(tmp_path, "store", f"etcd:stories-{next(_clusters)}@{etcd.url}")
    close.append(cluster)
    cluster.until_led(1, 2, 3)
    cluster.until_in_sync(1, 2, 3)
    before = {(led.broker, led.name, led.token) for led in cluster.led()}

    etcd.kill()
    until(lambda: cluster.acting() == set(), "all leases have lapsed")
    etcd.start()
    cluster.until_led(1, 2, 3)

    assert {(led.broker, led.name, led.token) for led in cluster.led()} == before
    assert len(cluster.led()) == 2 * len(before)
    cluster.check_disjoint()


# -- a controller and a participant in each process --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "sessions", "rounds"),
    [
        ("sqlite", "store", 1),
        pytest.param("sqlite", "store", 6, marks=pytest.mark.long),
        pytest.param("sqlite", "controller", 4, marks=pytest.mark.long),
        pytest.param("zookeeper", "store", 4, marks=[pytest.mark.long, pytest.mark.interop, pytest.mark.java]),
        pytest.param("etcd", "store", 4, marks=[pytest.mark.long, pytest.mark.interop]),
    ],
    indirect=["place"],
)
def test_one_of_two_programs_is_stopped(
    place: Place, sessions: str, rounds: int, tmp_path: Path, close: list[Cluster]
) -> None:
    """Each program is a controller and a participant. One of them is stopped, the other one leads; it continues, and
    follows. Then it is the other one's turn."""
    cluster = Cluster(tmp_path, sessions, place.store, [*SHORT_LAG, "--brokers", "2"])
    close.append(cluster)
    for broker in (1, 2):
        cluster.start_node(broker)
    until(lambda: cluster.leaders().keys() == set(NAMES), "all partitions are led")

    for number in range(rounds):
        stopped, other = (1, 2) if number % 2 == 0 else (2, 1)
        cluster.until_in_sync(1, 2)
        cluster.participants[stopped].pause()
        cluster.until_led(other)
        cluster.participants[stopped].resume()
        until(lambda: cluster.acting() == {other}, "the stopped one has ended")  # noqa: B023 - waits here
    cluster.until_in_sync(1, 2)

    cluster.check_disjoint()


# -- killed controllers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "sessions", "kills"),
    [
        ("sqlite", "controller", 2),
        pytest.param("sqlite", "controller", 20, marks=pytest.mark.long),
        pytest.param("sqlite", "store", 20, marks=pytest.mark.long),
        pytest.param("zookeeper", "controller", 20, marks=[pytest.mark.long, pytest.mark.interop, pytest.mark.java]),
        pytest.param("etcd", "controller", 20, marks=[pytest.mark.long, pytest.mark.interop]),
    ],
    indirect=["place"],
)
def test_killed_controllers_change_no_leadership(
    place: Place, sessions: str, kills: int, tmp_path: Path, close: list[Cluster]
) -> None:
    """The active controller is killed again and again while a participant creates topics."""
    cluster = three_participants(tmp_path, sessions, place.store, load=True)
    close.append(cluster)
    cluster.until_led(1, 2, 3)
    before = sorted(cluster.led())

    for _ in range(kills):
        killed = cluster.active()
        cluster.controllers[killed].kill()
        until(lambda: cluster.active() not in (-1, killed), "the standby is active")  # noqa: B023 - waits here
        cluster.start_controller(killed)
        until(lambda: cluster.linked() == "1 2 3", "all participants have found it")

    assert sorted(cluster.led()) == before
    assert [cluster.lost(broker) for broker in (1, 2, 3)] == [[], [], []]
    assert "created" not in cluster.controllers[cluster.active()].text


@over("sqlite", "etcd", "zookeeper", kept="")
def test_leases_outlast_a_killed_controller_by_default(place: Place, tmp_path: Path, close: list[Cluster]) -> None:
    """Nothing has a session timeout of its own. Over ZooKeeper, whose controllership lasts for 18 s as that of Kafka's
    brokers, leases lapse meanwhile, and resume under the same tokens."""
    cluster = three_participants(
        tmp_path, "controller", place.store, ["--defaults"], controllers=(*CONTROLLERS, 102)
    )  # fmt: skip
    close.append(cluster)
    cluster.until_led(1, 2, 3)
    before = {(led.broker, led.name, led.token) for led in cluster.led()}

    for _ in range(2):
        killed = cluster.active()
        cluster.controllers[killed].kill()
        until(lambda: cluster.active() not in (-1, killed), "a standby is active")  # noqa: B023 - waits here
        until(lambda: cluster.linked() == "1 2 3", "all participants have found it")
        cluster.until_led(1, 2, 3)

    assert {(led.broker, led.name, led.token) for led in cluster.led()} == before
    assert "created" not in cluster.controllers[cluster.active()].text
    lapses = [lost for broker in (1, 2, 3) for lost in cluster.lost(broker)]
    assert bool(lapses) == place.store.startswith("zookeeper")
    cluster.check_disjoint()


@pytest.mark.long
@pytest.mark.parametrize("sessions", ["store", "controller"])
def test_stopped_controller_changes_no_leadership(sessions: str, tmp_path: Path, close: list[Cluster]) -> None:
    """The active controller is stopped until another one is active, and continues: it grants and orders nothing."""
    cluster = three_participants(tmp_path, sessions, load=True)
    close.append(cluster)
    cluster.until_led(1, 2, 3)
    before = sorted(cluster.led())
    stopped = cluster.active()
    other = sum(CONTROLLERS) - stopped

    cluster.controllers[stopped].pause()
    until(
        lambda: cluster.active() == other and cluster.linked() == "1 2 3", "all participants have found the other one"
    )
    cluster.controllers[stopped].resume()
    cluster.controllers[stopped].wait_for_line("standby", PATIENCE_S)

    assert cluster.active() == other
    assert cluster.linked() == "1 2 3"
    assert sorted(cluster.led()) == before
    assert [cluster.lost(broker) for broker in (1, 2, 3)] == [[], [], []]


@pytest.mark.long
@pytest.mark.parametrize("sessions", ["store", "controller"])
def test_controller_and_leader_are_killed_together(sessions: str, tmp_path: Path, close: list[Cluster]) -> None:
    cluster = three_participants(tmp_path, sessions)
    close.append(cluster)
    cluster.until_led(1, 2, 3)
    cluster.until_in_sync(1, 2, 3)

    cluster.controllers[cluster.active()].kill()
    cluster.kill(1)
    cluster.until_led(2, 3)

    assert all(earlier.broker == 1 for earlier, _ in cluster.successions())
    cluster.check_disjoint()

"""What a bad day does to the controller of three real brokers: rivals, silence, and a ZooKeeper that is not there.

At protocol level 2.6 every broker contests for the controllership as kactl does, so wherever a session ends it may be
a broker that wins it. Then kactl has to stand by until it is told to take over.

One cluster serves the whole file; the tests build on each other in the order in which they stand.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.error import HTTPError

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from .brokers import Cluster
from .kactl_process import KactlController
from .link import Link
from .processes import POLL_S, HarnessError
from .traffic import Traffic
from .zookeeper import ZooKeeperServer

SESSION_S: Final = 6.0
# The server ends a session at its next tick, and everybody else is busy, too.
MARGIN_S: Final = 20.0
CHROOT: Final = "/adversity"
TOPIC: Final = "orders"
KACTL: Final = 900_001


class Bench:
    """ZooKeeper behind a wire, three brokers that came before kactl, and eyes of our own in ZooKeeper."""

    def __init__(self, folder: Path, zookeeper: ZooKeeperServer, link: Link) -> None:
        self.folder = folder
        self.zookeeper = zookeeper
        self.link = link
        self.connect = zookeeper.connect(CHROOT)
        self.wired = f"127.0.0.1:{link.port}{CHROOT}"
        self.cluster = Cluster(folder, zookeeper=self.wired, session_timeout_ms=int(SESSION_S * 1000))
        self.kactl = self.instance(0, takeover=True)
        self.standby = self.instance(1)

    def instance(self, number: int, *, takeover: bool = False) -> KactlController:
        return KactlController(
            KACTL + number, folder=self.folder / f"kactl-{number}", zookeeper=self.wired, takeover=takeover
        )

    def holder(self) -> tuple[int | None, int]:
        """Who has the controllership, and the latest epoch."""
        nodes = self.nodes("/controller", "/controller_epoch")
        held = nodes.get("/controller")
        return None if held is None else int(json.loads(held[0])["brokerid"]), int(nodes["/controller_epoch"][0])

    def states(self) -> dict[str, tuple[bytes, int]]:
        """What stands in ZooKeeper of each partition, and the transaction that wrote it."""
        with Look(self.connect) as client:
            paths = [
                f"/brokers/topics/{topic}/partitions/{partition}/state"
                for topic in children(client, "/brokers/topics")
                for partition in children(client, f"/brokers/topics/{topic}/partitions")
            ]
        return self.nodes(*paths)

    def nodes(self, *paths: str) -> dict[str, tuple[bytes, int]]:
        """Data and last transaction of those nodes that exist."""
        found: dict[str, tuple[bytes, int]] = {}
        with Look(self.connect) as client:
            for path in paths:
                with suppress(NoNodeError):
                    data, stat = client.get(path)
                    found[path] = bytes(data), int(stat.mzxid)
        return found

    def brokers(self) -> list[str]:
        """The ids that are registered."""
        with Look(self.connect) as client:
            return children(client, "/brokers/ids")

    def led(self, *, without: int | None = None) -> bool:
        """Whether every partition has a leader in ZooKeeper, and none of them is `without`."""
        leaders = [json.loads(data)["leader"] for data, _ in self.states().values()]
        return bool(leaders) and all(leader not in (-1, without) for leader in leaders)

    def whole(self) -> bool:
        """Whether all three brokers are in every ISR."""
        return all(len(json.loads(data)["isr"]) == 3 for data, _ in self.states().values())

    def settled(self) -> bool:
        """Whether all brokers are registered, lead and are in sync, and kactl has taken over and knows of them."""
        return len(self.brokers()) == 3 and self.led() and self.whole() and self.seen() == 3

    def seen(self) -> int:
        """How many brokers kactl knows; none while it is not the controller, or takes over."""
        try:
            return int(self.kactl.get("/v1/cluster")["brokers"])
        except HTTPError:
            return 0

    def reinstate(self) -> None:
        """See that kactl is the controller, where a broker was faster to be."""
        if self.holder()[0] != self.kactl.node_id or not is_active(self.kactl):
            self.kactl.stop()
            self.kactl.start()

    def rules(self) -> None:
        """See that kactl rules: a broker dies, others lead what it led, and it is in sync again after its return."""
        # After what was done to them brokers may still be on their way back.
        until(self.settled, "a cluster at rest", SESSION_S + 60)
        (data, _) = self.states()[f"/brokers/topics/{TOPIC}/partitions/0/state"]
        victim = json.loads(data)["leader"]
        self.cluster[victim].kill()
        until(lambda: self.led(without=victim), "new leaders", SESSION_S + MARGIN_S)
        assert self.holder()[0] == self.kactl.node_id
        self.cluster[victim].start()
        until(self.whole, "whole ISRs", 60)


class Look:
    """A client for one look."""

    def __init__(self, connect: str) -> None:
        self._client = KazooClient(connect)

    def __enter__(self) -> KazooClient:
        self._client.start(timeout=15)
        return self._client

    def __exit__(self, *_: object) -> None:
        self._client.stop()
        self._client.close()


def children(client: KazooClient, path: str) -> list[str]:
    """What stands below a node; nothing where it is not there, or no longer."""
    try:
        return list(client.get_children(path))
    except NoNodeError:
        return []


def until(reached: Callable[[], bool], what: str, timeout_s: float) -> None:
    """Wait for something that real processes bring about."""
    deadline = time.monotonic() + timeout_s
    while not reached():
        if time.monotonic() > deadline:
            raise HarnessError(f"not within {timeout_s:g} s: {what}")
        time.sleep(POLL_S)


def is_active(kactl: KactlController) -> bool:
    """What its probe says."""
    try:
        kactl.get("/leader")
    except HTTPError as refused:
        if refused.code != 503:
            raise
        return False
    return True


@pytest.fixture(scope="module")
def bench(jars: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("adversity")
    with ZooKeeperServer(folder / "zookeeper") as zookeeper, Link(zookeeper.port) as link:
        made = Bench(folder, zookeeper, link)
        try:
            with made.cluster:
                yield made
        finally:
            made.kactl.kill()
            made.standby.kill()


def test_it_takes_over_from_a_broker_under_load_and_hands_back(bench: Bench) -> None:
    with Traffic(bench.cluster.bootstrap, TOPIC) as traffic:
        traffic.wait_acknowledged(200, timeout_s=60)
        stock, before = bench.holder()

        bench.kactl.start()
        taken = bench.holder()
        moved = bench.kactl.post("/v1/elections", type="preferred", all=True)
        traffic.wait_acknowledged(200, timeout_s=60)
        bench.kactl.stop()
        until(lambda: bench.holder()[0] in (1, 2, 3), "a broker as controller", MARGIN_S)
        given_back = bench.holder()
        traffic.wait_acknowledged(200, timeout_s=60)
        traffic.finish(timeout_s=60)

    assert stock in (1, 2, 3)
    assert taken == (KACTL, before + 1)
    assert not moved["results"]  # nothing was moved by the takeover that would have to be moved back
    assert given_back[1] == before + 2
    assert not traffic.errors


def test_an_instance_that_slept_while_a_broker_took_over_writes_nothing_and_stands_by(bench: Bench) -> None:
    bench.kactl.start()
    _, ours = bench.holder()
    process = bench.kactl.process
    assert process is not None

    process.pause()
    until(lambda: bench.holder()[0] in (1, 2, 3), "a broker as controller", SESSION_S + MARGIN_S)
    stock, theirs = bench.holder()
    # Something that the sleeper missed, and would see to on waking if it still thought itself the controller.
    victim = 1 if stock != 1 else 2
    bench.cluster[victim].kill()
    until(lambda: bench.led(without=victim), "new leaders by the broker", SESSION_S + MARGIN_S)
    written = leaderships(bench, of=ours)
    process.resume()
    process.wait_for_line(rf"controller {stock} is active; this instance stands by", timeout=30)
    until(lambda: not is_active(bench.kactl), "the sleeper to resign", 15)
    seen = bench.kactl.get("/v1/controller")

    assert theirs > ours
    assert (seen["active_id"], seen["is_active"]) == (stock, False)
    assert bench.holder() == (stock, theirs)
    # A leader may change its ISR under the epoch of the controller that made it leader, but nothing else.
    assert leaderships(bench, of=ours).items() <= written.items()
    assert "Traceback" not in process.text

    bench.cluster[victim].start()
    until(bench.whole, "whole ISRs", 60)


def test_of_two_instances_one_acts_and_when_it_dies_somebody_takes_over(bench: Bench) -> None:
    bench.kactl.stop()
    bench.standby.start(active=False)
    bench.kactl.start()
    _, epoch = bench.holder()
    until(lambda: bool(bench.standby.get("/v1/controller")["active_id"] == KACTL), "the standby to hear of it", 10)
    assert (is_active(bench.kactl), is_active(bench.standby)) == (True, False)

    bench.kactl.kill()
    until(lambda: bench.holder()[0] not in (None, KACTL), "somebody else", SESSION_S + MARGIN_S)
    heir, theirs = bench.holder()
    until(lambda: is_active(bench.standby) == (heir == KACTL + 1), "the standby to know", 10)
    bench.kactl.start()
    until(lambda: not is_active(bench.standby), "the standby to resign", 10)

    assert theirs > epoch
    assert bench.holder() == (KACTL, theirs + 1)
    assert is_active(bench.kactl)
    bench.standby.stop()
    bench.rules()


def test_a_zookeeper_that_is_silent_for_less_than_the_session_changes_nothing(bench: Bench) -> None:
    before = bench.holder()

    bench.link.cut()
    time.sleep(SESSION_S / 4)  # the silence itself is what is tested
    bench.link.mend()
    bench.rules()

    assert bench.holder() == before


def test_a_zookeeper_that_ends_all_sessions_gets_one_controller_with_a_higher_epoch(bench: Bench) -> None:
    _, before = bench.holder()

    bench.link.cut()
    until(lambda: bench.holder()[0] is None and not bench.brokers(), "the end of all sessions", SESSION_S + MARGIN_S)
    bench.link.mend()
    until(lambda: bench.holder()[0] is not None, "a controller", SESSION_S + MARGIN_S)
    heir, theirs = bench.holder()
    until(lambda: is_active(bench.kactl) == (heir == KACTL), "kactl to know", SESSION_S)
    bench.reinstate()

    assert theirs > before
    bench.rules()


def test_a_zookeeper_that_is_restarted_keeps_or_gets_one_controller(bench: Bench) -> None:
    before = bench.holder()

    bench.zookeeper.restart()
    # It counts the sessions that it remembers anew; who had his own clock run out meanwhile comes with a new one.
    until(lambda: bench.holder()[0] is not None, "a controller", SESSION_S + MARGIN_S)
    bench.reinstate()

    assert bench.holder()[1] >= before[1]
    bench.rules()


def leaderships(bench: Bench, *, of: int) -> dict[str, tuple[int, int]]:
    """Leader and leader epoch of the partitions that the controller with epoch `of` was the last to decide on."""
    states = {path: json.loads(data) for path, (data, _) in bench.states().items()}
    return {
        path: (state["leader"], state["leader_epoch"])
        for path, state in states.items()
        if state["controller_epoch"] == of
    }

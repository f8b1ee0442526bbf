"""Instances that are held on the command line, in processes that are restarted and killed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kactl.admin.schema import ClusterInfo, ControllerInfo, HealthCheck, HoldInfo, Released
from tests.support.etcd_server import EtcdServer, require_etcd

from .instances import INSTANCES, Instances, over_etcd
from .server import QUICK, Up

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    require_etcd()
    with EtcdServer(tmp_path_factory.mktemp("etcd")) as server:
        yield server


@pytest.fixture
def instances(etcd: EtcdServer, tmp_path: Path) -> Iterator[Instances]:
    made = Instances(tmp_path, over_etcd(etcd))
    try:
        yield made
    finally:
        made.close()


def holds(info: ControllerInfo) -> list[HoldInfo]:
    assert info.holds is not None
    return list(info.holds)


def start_standby(instances: Instances, node: int) -> None:
    instances.start(node)
    instances.until(lambda: instances.is_standby(node), f"instance {node} stands by")


def check_of(instances: Instances, node: int) -> HealthCheck:
    checks = instances.at(node, "status", "-o", "json").json(ClusterInfo).checks
    return next(check for check in checks if check.name == "held-instances")


@pytest.mark.interop
def test_held_instance_stays_out_over_restarts_until_released(instances: Instances) -> None:
    held = instances.active()
    (other,) = set(INSTANCES) - {held}
    start_standby(instances, other)

    resigned = instances.at(held, "controller", "resign", "--hold", "--reason", "a new kernel", "--yes")
    assert resigned.code == 0, resigned.err
    assert f"kactl controller release {held}" in resigned.err
    assert instances.active() == other
    instances.kill(held)
    check = check_of(instances, other)
    assert (check.result, check.remedy) == ("warn", f"kactl controller release {held}")
    assert f"held            {held}, by " in instances.at(other, "get", "controller").out

    # It stands by after its restart. Without any other instance it takes over, and is held as before.
    start_standby(instances, held)
    (hold,) = holds(instances.info(held))
    assert (hold.controller_id, hold.reason, hold.until_ms) == (held, "a new kernel", None)
    instances.kill(other)
    assert instances.active() == held
    assert holds(instances.info(held)) == [hold]

    start_standby(instances, other)
    released = instances.at(held, "controller", "release", str(held), "--yes", "-o", "json")
    assert released.json(Released).changed
    instances.kill(held)
    assert instances.active() == other
    assert holds(instances.info(other)) == []


def test_hold_of_the_only_instance_ends_at_its_time(tmp_path: Path) -> None:
    up = Up(tmp_path, env=QUICK)
    try:
        assert up("controller", "resign", "--until", "2s", "--yes", "--reason", "test").code == 0
        up.until(lambda: up.is_ready() and up.epoch() > 1, "it is the controller again")

        up.until(lambda: up("get", "controller", "-o", "json").json(ControllerInfo).holds == (), "the hold is over")
    finally:
        up.close()

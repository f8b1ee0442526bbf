"""`kactl up`: stop, kill, restart, exclusive use of folder and port; failing and returning brokers."""

import contextlib
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import anyio.from_thread
import msgspec
import pytest

from kactl.admin.schema import BrokerInfo, EventPage, TermInfo
from kactl.cli.exits import Failure
from kactl.cli.setup import check_free
from kactl.config.file import load
from kactl.model import NO_EPOCH, Broker
from kactl.stores.sqlite import SqliteStore
from tests.support.api_access import opened
from tests.support.processes import Process

from .server import QUICK, START_S, STOP_S, Up, kactl, kactl_process

DURABLE = ("topic", "partition", "leader", "leader_epoch", "isr", "replicas", "partition_epoch")


def durable_state(up: Up) -> list[tuple[object, ...]]:
    """Returns the state that a restart must not change."""
    return [tuple(getattr(partition, name) for name in DURABLE) for partition in up.partitions()]


def kill_broker(up: Up, broker: int, topic: str) -> None:
    """Kill a broker, and wait until other brokers lead all its partitions, and no partition of the topic is offline."""
    assert up("broker", "kill", str(broker)).code == 0
    up.until(lambda: not up.partitions("--leader", str(broker)), f"broker {broker} leads no partition")
    up.until(lambda: not up.partitions("--offline", "--topic", topic), f"every partition of {topic} has a leader")


@pytest.mark.slow
def test_stopped_cluster_continues_after_restart(own_up: Up) -> None:
    own_up("topic", "create", "orders", "--partitions", "4", "--replication-factor", "3")
    kill_broker(own_up, 1, "orders")
    before, epoch = durable_state(own_up), own_up.epoch()

    own_up.process.signal(signal.SIGINT)
    code = own_up.process.wait(STOP_S)
    text = own_up.process.text
    own_up.start("--participants", "3")

    assert code == 0
    assert f"Stopped. The cluster is stored in {own_up.data_dir / 'kactl.db'}." in text
    assert "Traceback" not in text
    assert own_up.epoch() == epoch + 1
    own_up.until(lambda: not own_up.partitions("--urp"), "broker 1 is in sync again")
    after = durable_state(own_up)
    assert [row[:4] for row in after] == [row[:4] for row in before]  # leaders and leader epochs among them


@pytest.mark.slow
def test_server_without_participants_suggests_no_topic(own_up: Up) -> None:
    assert "topic create clicks --partitions 6 --replication-factor 3" in own_up.process.text
    own_up.process.signal(signal.SIGINT)
    assert own_up.process.wait(STOP_S) == 0

    own_up.start("--participants", "0")

    assert "get brokers" in own_up.process.text
    assert "topic create" not in own_up.process.text


@pytest.mark.slow
def test_killed_cluster_restarts_without_waiting_for_sessions(patient_up: Up) -> None:
    patient_up("topic", "create", "orders", "--partitions", "4", "--replication-factor", "3", "--config", "a=b")
    before, epoch = durable_state(patient_up), patient_up.epoch()

    patient_up.process.kill()
    patient_up.start()

    assert "waiting" not in patient_up.process.text
    assert patient_up.epoch() == epoch + 1
    assert durable_state(patient_up) == before
    assert patient_up("topic", "create", "more").code == 0


def event_numbers(up: Up) -> list[int]:
    """Returns the numbers of all retained events."""
    with opened(f"{up.url}/v1/events?limit=10000") as response:
        return [event.seq for event in msgspec.json.decode(response.read(), type=EventPage).items]


def log_text(up: Up) -> str:
    """Returns the state-change log of all runs."""
    return "".join(file.read_text() for file in (up.data_dir / "log").iterdir() if file.suffix != ".npz")


@pytest.mark.slow
def test_history_and_events_of_earlier_runs_are_shown(own_up: Up) -> None:
    own_up("topic", "create", "orders", "--reason", "first run")
    own_up.process.stop(STOP_S)
    own_up.start()
    own_up("topic", "create", "bills")
    stopped = event_numbers(own_up)
    # The log is written a moment later; a killed process loses the events that it has not written.
    own_up.until(lambda: f'"seq":{stopped[-1]},' in log_text(own_up), "the log contains all events")
    own_up.process.kill()
    own_up.start()

    terms = own_up("controller", "history", "-o", "jsonl").jsonl(TermInfo)
    killed = event_numbers(own_up)
    shown = own_up("watch", "--since", "0", "--types", "request", "-n", "2").out

    assert [term.epoch for term in terms] == [1, 2, 3]
    assert [term.cause for term in terms] == ["asked to resign", "the instance ended without giving it up", ""]
    assert [term.ended_ms is None for term in terms] == [False, False, True]
    assert killed[: len(stopped)] == stopped
    assert killed == sorted(set(killed))
    assert "create topic orders: done  reason: first run" in shown
    assert "create topic bills: done" in shown


@pytest.mark.slow
def test_start_waits_for_a_broker_of_another_process(patient_up: Up) -> None:
    patient_up.process.stop(STOP_S)

    with registered(patient_up.data_dir / "kactl.db", broker=2):
        process = Process(patient_up.command(), output=patient_up.folder / "up.log", env=patient_up.env)
        process.wait_for_line("another process has registered broker 2 in", START_S)
        process.signal(signal.SIGINT)

        assert process.wait(STOP_S) == 0, process.text
    assert "Traceback" not in process.text


@contextlib.contextmanager
def registered(path: Path, *, broker: int) -> Iterator[None]:
    """Register a broker from this process, which has no lock, in the store of a cluster."""
    with anyio.from_thread.start_blocking_portal() as portal:
        store = portal.wrap_async_context_manager(SqliteStore(path))
        with store as opened:
            session = portal.call(opened.new_session, 60_000)
            portal.call(session.register, Broker(broker, NO_EPOCH, (), None))
            yield


def test_folder_or_port_in_use_is_rejected(up: Up, tmp_path: Path) -> None:
    same_folder = kactl_process("up", "--data-dir", up.data_dir, "--listen", "127.0.0.1:0")
    same_port = kactl_process("up", "--data-dir", tmp_path / "new", "--listen", f"127.0.0.1:{up.port}")

    assert (same_folder.code, same_port.code) == (1, 1)
    holder = f"{up.data_dir} is in use by process {up.process.pid}, which serves {up.url}"
    assert f"error: --data-dir: {holder}: stop it, or choose another folder with --data-dir" in same_folder.err
    assert f"error: --listen: 127.0.0.1:{up.port} cannot be listened on (Address already in use)" in same_port.err
    assert not (tmp_path / "new" / "kactl.db").exists()


@pytest.mark.parametrize("key", ["api", "network"])
def test_address_in_use_is_reported_by_its_key(up: Up, tmp_path: Path, key: str) -> None:
    config = tmp_path / "kactl.toml"
    free = "" if key == "api" else '[api]\nlisten = "127.0.0.1:0"\n'
    config.write_text(f'{free}[{key}]\nlisten = "127.0.0.1:{up.port}"\n')

    refused = kactl_process("up", "--config", config, "--data-dir", tmp_path / "new")

    assert refused.code == 1
    address = f"127.0.0.1:{up.port} cannot be listened on (Address already in use)"
    remedy = f"stop the process that listens there, or choose another address with {key}.listen"
    assert refused.err == f"error: {key}.listen: {address}: {remedy}\n"
    assert not (tmp_path / "new" / "kactl.db").exists()


def test_file_that_is_not_a_store_is_unchanged(tmp_path: Path) -> None:
    (tmp_path / "kactl.db").write_text("mine")

    refused = kactl_process("up", "--data-dir", tmp_path, "--listen", "127.0.0.1:0")

    assert refused.code == 1
    assert refused.err.startswith(f"error: {tmp_path / 'kactl.db'}: ")
    assert "Traceback" not in refused.err
    assert (tmp_path / "kactl.db").read_text() == "mine"


def test_killed_broker_loses_leadership_and_rejoins_in_sync(up: Up) -> None:
    up("topic", "create", "failing", "--partitions", "6", "--replication-factor", "3")
    led = len(up.partitions("--topic", "failing", "--leader", "2"))

    kill_broker(up, 2, "failing")
    brokers = up("get", "brokers", "-o", "jsonl").jsonl(BrokerInfo)
    shrunk = up.partitions("--topic", "failing")
    again = up("broker", "restart", "2")
    up.until(lambda: not up.partitions("--urp"), "every replica is in sync")
    back = up("elect", "preferred", "--topic", "failing", "--yes")

    assert led == 2
    assert [broker.state for broker in brokers] == ["live", "dead", "live"]
    assert all(partition.leader != 2 and sorted(partition.isr) == [1, 3] for partition in shrunk)
    assert (again.code, again.err) == (0, "Restarted broker 2.\n")
    assert "2 moved, 4 not needed." in back.err
    assert len(up.partitions("--topic", "failing", "--leader", "2")) == led


@pytest.mark.slow
def test_demo_prints_leader_changes_and_keeps_running(tmp_path: Path) -> None:
    demo = Up(tmp_path, "--demo")
    try:
        demo.process.wait_for_line("the demo is complete", START_S)
        text = demo.process.text
        assert demo("topic", "describe", "orders").code == 0
        assert f"`kactl --server {demo.url} elect preferred --all`" in text
    finally:
        demo.close()

    moves = re.findall(r"^[\d:.]{12}  orders-\d+ +1 -> [23] +1  [23],[23]$", text, re.MULTILINE)
    assert len(moves) == 4
    assert re.search(r"broker 1 is killed; it leads 4 partitions", text)
    assert re.search(r"every partition has a leader again: \d\.\d\d s after the kill", text)
    assert re.search(r"every replica is in sync again", text)
    assert "\x1b" not in text


@pytest.mark.slow
def test_demo_waits_for_participants_that_connect_over_the_network(tmp_path: Path) -> None:
    demo = Up(tmp_path, "--demo", env={**QUICK, "KACTL_NETWORK__LISTEN": "127.0.0.1:0"})
    try:
        demo.process.wait_for_line("every partition has a leader; killing broker 1", START_S)
    finally:
        demo.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--demo", "--participants", "2"], "2 participants are too few for 3 replicas"),
        (["--listen", "nowhere"], "'nowhere' is not an address"),
        (["--config", "absent.toml"], "absent.toml: there is no such file"),
        (["--participants", "-1"], "Invalid value for '--participants'"),
    ],
)
def test_invalid_options_of_up_are_rejected(tmp_path: Path, options: list[str], message: str) -> None:
    refused = kactl("up", *options, cwd=tmp_path)

    assert refused.code == 2
    assert message in refused.err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_cluster_is_ready_when_it_prints_that_it_is_up(patient_up: Up) -> None:
    patient_up.process.stop(STOP_S)

    patient_up.launch()

    assert patient_up.is_ready()


def test_address_of_another_host_has_no_process_to_stop() -> None:
    config = load(None, {}, {"node-id": 0, "api.listen": "192.0.2.1:8080"})

    with pytest.raises(Failure) as refused:
        check_free(config)

    reason = "192.0.2.1:8080 cannot be listened on (Cannot assign requested address)"
    assert refused.value.message == f"api.listen: {reason}: choose another address with api.listen"

"""`kactl up` over its life: stopped, killed, started again, wanted twice; brokers that die and come back."""

import contextlib
import re
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import anyio.from_thread
import msgspec
import pytest

from kactl.admin.schema import BrokerInfo, EventPage, TermInfo
from kactl.model import NO_EPOCH, Broker
from kactl.stores.sqlite import SqliteStore

from .server import START_S, STOP_S, Up, kactl

WHAT_STAYS = ("topic", "partition", "leader", "leader_epoch", "isr", "replicas", "partition_epoch")


def kept(up: Up) -> list[tuple[object, ...]]:
    """What a restart must not change."""
    return [tuple(getattr(each, name) for name in WHAT_STAYS) for each in up.partitions()]


def kill_broker(up: Up, broker: int, topic: str) -> None:
    """Kill it, and wait until nothing is led by it, and the whole topic by others; other tests have topics, too."""
    assert up("broker", "kill", str(broker)).code == 0
    up.until(lambda: not up.partitions("--leader", str(broker)), f"nothing is led by {broker}")
    up.until(lambda: not up.partitions("--offline", "--topic", topic), f"all of {topic} is led")


def test_what_is_stopped_goes_on_where_it_was(own_up: Up) -> None:
    own_up("topic", "create", "orders", "--partitions", "4", "--replication-factor", "3")
    kill_broker(own_up, 1, "orders")
    before, epoch = kept(own_up), own_up.epoch()

    own_up.process.signal(signal.SIGINT)
    code = own_up.process.wait(STOP_S)
    said = own_up.process.text
    own_up.start("--participants", "3")

    assert code == 0
    assert f"Stopped. The cluster is kept in {own_up.data_dir / 'kactl.db'}." in said
    assert "Traceback" not in said
    assert own_up.epoch() == epoch + 1
    own_up.until(lambda: not own_up.partitions("--urp"), "broker 1 is in sync again")
    after = kept(own_up)
    assert [row[:4] for row in after] == [row[:4] for row in before]  # leaders and leader epochs among them


def test_a_killed_cluster_starts_again_without_waiting_for_its_leases(patient_up: Up) -> None:
    patient_up("topic", "create", "orders", "--partitions", "4", "--replication-factor", "3", "--config", "a=b")
    before, epoch = kept(patient_up), patient_up.epoch()

    patient_up.process.kill()
    patient_up.start()

    assert "waiting" not in patient_up.process.text
    assert patient_up.epoch() == epoch + 1
    assert kept(patient_up) == before
    assert patient_up("topic", "create", "more").code == 0


def numbers(up: Up) -> list[int]:
    """Of all events that are held."""
    with urllib.request.urlopen(f"{up.url}/v1/events?limit=10000", timeout=10) as answer:
        return [event.seq for event in msgspec.json.decode(answer.read(), type=EventPage).items]


def test_history_and_events_of_earlier_runs_are_shown(own_up: Up) -> None:
    own_up("topic", "create", "orders", "--reason", "first run")
    own_up.process.stop(STOP_S)
    own_up.start()
    own_up("topic", "create", "bills")
    stopped = numbers(own_up)
    own_up.process.kill()
    own_up.start()

    terms = own_up("controller", "history", "-o", "jsonl").jsonl(TermInfo)
    killed = numbers(own_up)
    shown = own_up("watch", "--since", "0", "--types", "request", "-n", "2").out

    assert [term.epoch for term in terms] == [1, 2, 3]
    assert [term.cause for term in terms] == ["asked to resign", "the instance ended without giving it up", ""]
    assert [term.ended_ms is None for term in terms] == [False, False, True]
    assert killed[: len(stopped)] == stopped
    assert killed == sorted(set(killed))
    assert "create topic orders: done  reason: first run" in shown
    assert "create topic bills: done" in shown


def test_a_start_waits_for_a_broker_of_another_process_until_it_is_stopped(patient_up: Up) -> None:
    patient_up.process.stop(STOP_S)

    with registered(patient_up.data_dir / "kactl.db", broker=2):
        process = type(patient_up.process)(patient_up.command, output=patient_up.folder / "up.log", env=patient_up.env)
        process.wait_for_line("another process has registered broker 2 in", START_S)
        process.signal(signal.SIGINT)

        assert process.wait(STOP_S) == 0
    assert "Traceback" not in process.text


@contextlib.contextmanager
def registered(path: Path, *, broker: int) -> Iterator[None]:
    """A broker of this process, which holds no lock, in the file of a cluster."""
    with anyio.from_thread.start_blocking_portal() as portal:
        store = portal.wrap_async_context_manager(SqliteStore(path))
        with store as opened:
            session = portal.call(opened.new_session, 60_000)
            portal.call(session.register, Broker(broker, NO_EPOCH, (), None))
            yield


def test_a_folder_and_a_port_are_used_by_one(up: Up, tmp_path: Path) -> None:
    same_folder = kactl("up", "--data-dir", up.data_dir, "--listen", "127.0.0.1:0")
    same_port = kactl("up", "--data-dir", tmp_path / "new", "--listen", f"127.0.0.1:{up.port}")

    assert (same_folder.code, same_port.code) == (1, 1)
    holder = f"{up.data_dir} is in use by process {up.process.pid}, which serves {up.url}"
    assert f"error: --data-dir: {holder}: stop it, or name another folder with --data-dir" in same_folder.err
    assert f"error: --listen: 127.0.0.1:{up.port} cannot be listened on (Address already in use)" in same_port.err
    assert not (tmp_path / "new" / "kactl.db").exists()


def test_a_file_that_is_no_store_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "kactl.db").write_text("mine")

    refused = kactl("up", "--data-dir", tmp_path, "--listen", "127.0.0.1:0")

    assert refused.code == 1
    assert refused.err.startswith(f"error: {tmp_path / 'kactl.db'}: ")
    assert "Traceback" not in refused.err
    assert (tmp_path / "kactl.db").read_text() == "mine"


def test_others_lead_while_a_broker_is_dead_and_it_comes_back_in_sync(up: Up) -> None:
    up("topic", "create", "failing", "--partitions", "6", "--replication-factor", "3")
    led = len(up.partitions("--topic", "failing", "--leader", "2"))

    kill_broker(up, 2, "failing")
    brokers = up("get", "brokers", "-o", "jsonl").jsonl(BrokerInfo)
    shrunk = up.partitions("--topic", "failing")
    again = up("broker", "restart", "2")
    up.until(lambda: not up.partitions("--urp"), "every replica is in sync")
    back = up("elect", "preferred", "--topic", "failing", "--yes")

    assert led == 2
    assert [each.state for each in brokers] == ["live", "dead", "live"]
    assert all(each.leader != 2 and sorted(each.isr) == [1, 3] for each in shrunk)
    assert (again.code, again.err) == (0, "Restarted broker 2.\n")
    assert "2 moved, 4 not needed." in back.err
    assert len(up.partitions("--topic", "failing", "--leader", "2")) == led


def test_the_demo_shows_leaders_moving_and_goes_on(tmp_path: Path) -> None:
    demo = Up(tmp_path, "--demo")
    try:
        demo.process.wait_for_line("that was the demo", START_S)
        said = demo.process.text
        assert demo("topic", "describe", "orders").code == 0
        assert f"`kactl --server {demo.url} elect preferred --all`" in said
    finally:
        demo.close()

    moves = re.findall(r"^[\d:.]{12}  orders-\d+ +1 -> [23] +1  [23],[23]$", said, re.MULTILINE)
    assert len(moves) == 4
    assert re.search(r"broker 1 is killed; it leads 4 partitions", said)
    assert re.search(r"every partition has a leader again: \d\.\d\d s after the kill", said)
    assert re.search(r"every replica is in sync again", said)
    assert "\x1b" not in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--demo", "--participants", "2"], "2 participants are too few for 3 replicas"),
        (["--listen", "nowhere"], "'nowhere' is not an address"),
        (["--config", "absent.toml"], "absent.toml: there is no such file"),
        (["--participants", "-1"], "Invalid value for '--participants'"),
    ],
)
def test_what_cannot_be_run_is_refused(tmp_path: Path, options: list[str], said: str) -> None:
    refused = kactl("up", *options, cwd=tmp_path)

    assert refused.code == 2
    assert said in refused.err
    assert not list(tmp_path.iterdir())

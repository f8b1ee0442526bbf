"""Controller failures: rival controllers, a paused controller, and an unavailable ZooKeeper.

Every broker competes for the controllership, so a broker may win whenever a session ends. kactl then stands by until it
receives a takeover request.
"""

import time
from collections.abc import Iterator

import pytest

from ..journal import Kind
from ..traffic import Traffic
from .bench import BROKERS, KACTL, MARGIN_S, OTHER, SESSION_S, Bench, as_json, until


@pytest.mark.checklist(12)
def test_controllership_passes_to_a_broker_and_back_under_load(bench: Bench) -> None:
    with Traffic(bench.cluster.bootstrap, "returns", group="readers-12") as traffic:
        traffic.wait_acknowledged(200, timeout_s=MARGIN_S)
        # No controller then has a reason to move a leader; both balance leaders.
        until(bench.balanced, "preferred leaders", MARGIN_S)
        _, before = bench.reader.holder()

        bench.kactl.stop()
        until(lambda: bench.reader.holder()[0] in BROKERS, "a broker as controller", MARGIN_S)
        given_back = bench.reader.holder()
        traffic.wait_acknowledged(200, timeout_s=MARGIN_S)
        led = {name: state.leader for name, state in bench.reader.states().items()}
        bench.kactl.start()
        taken = bench.reader.holder()
        traffic.wait_acknowledged(200, timeout_s=MARGIN_S)
        bench.rest()
        traffic.finish(timeout_s=MARGIN_S)

    assert given_back[1] == before + 1
    assert taken == (KACTL, before + 2)
    assert {name: state.leader for name, state in bench.reader.states().items()} == led
    assert traffic.acknowledged <= traffic.read
    assert not traffic.errors


@pytest.mark.checklist(13)
def test_paused_controller_writes_nothing_after_a_broker_takes_over(bench: Bench) -> None:
    _, ours = bench.reader.holder()
    process = bench.kactl.process
    assert process is not None

    process.pause()
    until(lambda: bench.reader.holder()[0] in BROKERS, "a broker as controller", SESSION_S + MARGIN_S)
    stock, theirs = bench.reader.holder()
    # A change during the pause. A resumed instance would handle it if it still considered itself the controller.
    victim = 1 if stock != 1 else 2
    bench.cluster[victim].kill()
    until(lambda: bench.led(without=[victim]), "new leaders by the broker", SESSION_S + MARGIN_S)
    asleep = max(write.zxid for write in bench.journal())
    process.resume()
    process.wait_for_line(rf"controller {stock} is active; this instance stands by", timeout=MARGIN_S)
    until(lambda: not bench.kactl.active, "the sleeper to resign", MARGIN_S)
    seen = bench.kactl.get("/v1/controller")
    bench.cluster[victim].start()
    until(lambda: bench.whole(), "whole ISRs", MARGIN_S)

    since = [write for write in bench.journal() if write.zxid > asleep and write.kind is not Kind.END_SESSION]
    brokers = bench.sessions_of_brokers()
    assert theirs > ours
    assert (seen["active_id"], seen["is_active"]) == (stock, False)
    assert bench.reader.holder() == (stock, theirs)
    assert since  # at least by the returned broker
    assert [write for write in since if write.session not in brokers] == []
    assert "Traceback" not in bench.kactl.log
    bench.reinstate()
    bench.rest()


@pytest.mark.checklist(15)
def test_second_instance_takes_over_when_the_first_dies(bench: Bench) -> None:
    bench.other.start(active=False)
    _, epoch = bench.reader.holder()
    until(lambda: bench.other.get("/v1/controller")["active_id"] == KACTL, "the other to hear of it", MARGIN_S)
    acting = (bench.kactl.active, bench.other.active)

    bench.kactl.kill()
    until(lambda: bench.reader.holder()[0] not in (None, KACTL), "another controller", SESSION_S + MARGIN_S)
    heir, theirs = bench.reader.holder()
    if heir != OTHER:  # a broker won first
        until(lambda: bench.other.get("/v1/controller")["active_id"] == heir, "the other to hear of it", MARGIN_S)
        assert not bench.other.active
        bench.other.stop()
        bench.other.configure(takeover=True)
        bench.other.start()
    until(lambda: bench.other.active, "the other to act", MARGIN_S)
    holder = bench.reader.holder()
    bench.kactl.configure(takeover=False)
    bench.kactl.start(active=False)
    until(lambda: bench.kactl.get("/v1/controller")["active_id"] == OTHER, "the first to hear of it", MARGIN_S)
    afterwards = (bench.kactl.active, bench.other.active)
    rules(bench, bench.other.node_id)
    bench.other.configure(takeover=False)
    bench.kactl.stop()
    bench.kactl.configure(takeover=True)
    bench.kactl.start()
    until(lambda: not bench.other.active, "the other to resign", MARGIN_S)
    bench.other.stop()

    assert acting == (True, False)
    assert theirs > epoch
    assert holder == (OTHER, theirs if heir == OTHER else theirs + 1)
    assert afterwards == (False, True)
    bench.rest()


@pytest.fixture
def sticky(bench: Bench) -> Iterator[None]:
    """Both instances run and keep the controllership from brokers."""
    bench.kactl.stop()
    bench.kactl.configure(takeover=True, sticky=True)
    bench.other.configure(takeover=False, sticky=True)
    bench.kactl.start()
    bench.other.start(active=False)
    bench.rest()
    yield
    for instance in (bench.kactl, bench.other):
        instance.kill()
    bench.kactl.configure(takeover=True)
    bench.other.configure(takeover=False)
    bench.kactl.start()
    bench.rest()


@pytest.mark.checklist(15)
@pytest.mark.usefixtures("sticky")
def test_sticky_instances_follow_each_other_and_no_broker_does(bench: Bench) -> None:
    _, epoch = bench.reader.holder()
    began = max(write.zxid for write in bench.journal())
    acting = (bench.kactl.active, bench.other.active)

    bench.kactl.kill()
    until(lambda: bench.other.active, "the other to act", SESSION_S + MARGIN_S)
    followed = bench.reader.holder()
    rules(bench, OTHER)
    bench.other.kill()
    left = bench.reader.holder()
    bench.kactl.start()  # finds the state of the dead instance and takes over
    back = bench.reader.holder()
    rules(bench, KACTL)

    controllers = [
        as_json(write)["brokerid"]
        for write in bench.journal()
        if write.zxid > began and write.path == "/controller" and write.kind is not Kind.DELETE
    ]
    assert acting == (True, False)
    assert followed == left == (OTHER, epoch + 1)
    assert back == (KACTL, epoch + 2)
    assert controllers == [OTHER, KACTL]


@pytest.mark.checklist(14)
def test_short_silence_of_zookeeper_changes_nothing(bench: Bench) -> None:
    before = bench.reader.holder()
    registered = bench.sessions_of_brokers()

    bench.link.cut()
    time.sleep(SESSION_S / 4)  # the silence itself is tested
    bench.link.mend()
    bench.rest()

    assert bench.reader.holder() == before
    assert bench.sessions_of_brokers() == registered


@pytest.mark.checklist(14)
def test_end_of_all_sessions_gives_one_controller_a_higher_epoch(bench: Bench) -> None:
    _, before = bench.reader.holder()

    bench.link.cut()
    until(
        lambda: bench.reader.holder()[0] is None and not bench.reader.registered(),
        "the end of all sessions",
        SESSION_S + MARGIN_S,
    )
    bench.link.mend()
    until(lambda: bench.reader.holder()[0] is not None, "a controller", SESSION_S + MARGIN_S)
    heir, theirs = bench.reader.holder()
    until(lambda: bench.kactl.active == (heir == KACTL), "kactl to know", MARGIN_S)
    bench.reinstate()
    bench.rest()

    assert theirs > before
    rules(bench, KACTL)


@pytest.mark.checklist(14)
def test_restarted_zookeeper_keeps_or_gets_one_controller(bench: Bench) -> None:
    before = bench.reader.holder()

    bench.zookeeper.restart()
    # It restarts the timeout of all known sessions; a client whose own timeout expired meanwhile opens a new one.
    bench.reinstate()
    bench.rest()

    assert bench.reader.holder()[0] == KACTL
    assert bench.reader.holder()[1] >= before[1]
    rules(bench, KACTL)


def rules(bench: Bench, controller: int) -> None:
    """Check that an instance is the controller: a topic created through it is led, in sync, and has its epoch."""
    holder, epoch = bench.reader.holder()
    topic = f"under-{epoch}"
    bench.create(topic, "--partitions", "3", "--replication-factor", "3", partitions=3)
    states = bench.reader.states_of(topic)
    bench.delete(topic)

    assert holder == controller
    assert len(states) == 3
    assert all(state.leader != -1 and state.controller_epoch == epoch for state in states.values())

"""What a bad day does to the controller: rivals, silence, and a ZooKeeper that is not there.

Every broker contests for the controllership as kactl does, so wherever a session ends it may be a broker that wins it.
Then kactl has to stand by until it is told to take over.
"""

import time
from collections.abc import Iterator

import pytest

from ..journal import Kind
from ..traffic import Traffic
from .bench import BROKERS, KACTL, MARGIN_S, OTHER, SESSION_S, Bench, as_json, until


@pytest.mark.checklist(12)
def test_it_hands_back_to_a_broker_and_takes_over_again_under_load(bench: Bench) -> None:
    with Traffic(bench.cluster.bootstrap, "returns", group="readers-12") as traffic:
        traffic.wait_acknowledged(200, timeout_s=MARGIN_S)
        # Then no controller has a reason to move a leader, as both do to balance them.
        until(bench.preferred, "preferred leaders everywhere", MARGIN_S)
        _, before = bench.eyes.holder()

        bench.kactl.stop()
        until(lambda: bench.eyes.holder()[0] in BROKERS, "a broker as controller", MARGIN_S)
        given_back = bench.eyes.holder()
        traffic.wait_acknowledged(200, timeout_s=MARGIN_S)
        led = {name: state.leader for name, state in bench.eyes.states().items()}
        bench.kactl.start()
        taken = bench.eyes.holder()
        traffic.wait_acknowledged(200, timeout_s=MARGIN_S)
        bench.rest()
        traffic.finish(timeout_s=MARGIN_S)

    assert given_back[1] == before + 1
    assert taken == (KACTL, before + 2)
    assert {name: state.leader for name, state in bench.eyes.states().items()} == led
    assert traffic.acknowledged <= traffic.read
    assert not traffic.errors


@pytest.mark.checklist(13)
def test_an_instance_that_slept_while_a_broker_took_over_writes_nothing_and_stands_by(bench: Bench) -> None:
    _, ours = bench.eyes.holder()
    process = bench.kactl.process
    assert process is not None

    process.pause()
    until(lambda: bench.eyes.holder()[0] in BROKERS, "a broker as controller", SESSION_S + MARGIN_S)
    stock, theirs = bench.eyes.holder()
    # Something that the sleeper missed, and would see to on waking if it still thought itself the controller.
    victim = 1 if stock != 1 else 2
    bench.cluster[victim].kill()
    until(lambda: bench.led(without=[victim]), "new leaders by the broker", SESSION_S + MARGIN_S)
    asleep = max(each.zxid for each in bench.journal())
    process.resume()
    process.wait_for_line(rf"controller {stock} is active; this instance stands by", timeout=MARGIN_S)
    until(lambda: not bench.kactl.active, "the sleeper to resign", MARGIN_S)
    seen = bench.kactl.get("/v1/controller")
    bench.cluster[victim].start()
    until(lambda: bench.whole(), "whole ISRs", MARGIN_S)

    since = [each for each in bench.journal() if each.zxid > asleep and each.kind is not Kind.END_SESSION]
    brokers = bench.sessions_of_brokers()
    assert theirs > ours
    assert (seen["active_id"], seen["is_active"]) == (stock, False)
    assert bench.eyes.holder() == (stock, theirs)
    assert since  # the returned broker, at least
    assert [each for each in since if each.session not in brokers] == []
    assert "Traceback" not in bench.kactl.log
    bench.reinstate()
    bench.rest()


@pytest.mark.checklist(15)
def test_of_two_instances_one_acts_and_when_it_dies_the_other_does(bench: Bench) -> None:
    bench.other.start(active=False)
    _, epoch = bench.eyes.holder()
    until(lambda: bench.other.get("/v1/controller")["active_id"] == KACTL, "the other to hear of it", MARGIN_S)
    acting = (bench.kactl.active, bench.other.active)

    bench.kactl.kill()
    until(lambda: bench.eyes.holder()[0] not in (None, KACTL), "somebody else", SESSION_S + MARGIN_S)
    heir, theirs = bench.eyes.holder()
    if heir != OTHER:  # a broker was faster
        until(lambda: bench.other.get("/v1/controller")["active_id"] == heir, "the other to hear of it", MARGIN_S)
        assert not bench.other.active
        bench.other.stop()
        bench.other.configure(takeover=True)
        bench.other.start()
    until(lambda: bench.other.active, "the other to act", MARGIN_S)
    holder = bench.eyes.holder()
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
    """Both instances run, and keep the controllership to themselves."""
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
def test_two_instances_that_keep_it_to_themselves_follow_each_other_and_no_broker_does(bench: Bench) -> None:
    _, epoch = bench.eyes.holder()
    began = max(each.zxid for each in bench.journal())
    acting = (bench.kactl.active, bench.other.active)

    bench.kactl.kill()
    until(lambda: bench.other.active, "the other to act", SESSION_S + MARGIN_S)
    followed = bench.eyes.holder()
    rules(bench, OTHER)
    bench.other.kill()
    left = bench.eyes.holder()
    bench.kactl.start()  # finds what the dead one has left, and takes it over
    back = bench.eyes.holder()
    rules(bench, KACTL)

    held = [
        as_json(each)["brokerid"]
        for each in bench.journal()
        if each.zxid > began and each.path == "/controller" and each.kind is not Kind.DELETE
    ]
    assert acting == (True, False)
    assert followed == left == (OTHER, epoch + 1)
    assert back == (KACTL, epoch + 2)
    assert held == [OTHER, KACTL]


@pytest.mark.checklist(14)
def test_a_zookeeper_that_is_silent_for_less_than_the_session_changes_nothing(bench: Bench) -> None:
    before = bench.eyes.holder()
    registered = bench.sessions_of_brokers()

    bench.link.cut()
    time.sleep(SESSION_S / 4)  # the silence itself is what is tested
    bench.link.mend()
    bench.rest()

    assert bench.eyes.holder() == before
    assert bench.sessions_of_brokers() == registered


@pytest.mark.checklist(14)
def test_a_zookeeper_that_ends_all_sessions_gets_one_controller_with_a_higher_epoch(bench: Bench) -> None:
    _, before = bench.eyes.holder()

    bench.link.cut()
    until(
        lambda: bench.eyes.holder()[0] is None and not bench.eyes.registered(),
        "the end of all sessions",
        SESSION_S + MARGIN_S,
    )
    bench.link.mend()
    until(lambda: bench.eyes.holder()[0] is not None, "a controller", SESSION_S + MARGIN_S)
    heir, theirs = bench.eyes.holder()
    until(lambda: bench.kactl.active == (heir == KACTL), "kactl to know", MARGIN_S)
    bench.reinstate()
    bench.rest()

    assert theirs > before
    rules(bench, KACTL)


@pytest.mark.checklist(14)
def test_a_zookeeper_that_is_restarted_keeps_or_gets_one_controller(bench: Bench) -> None:
    before = bench.eyes.holder()

    bench.zookeeper.restart()
    # It counts the sessions that it remembers anew; whose own clock ran out meanwhile comes with a new one.
    bench.reinstate()
    bench.rest()

    assert bench.eyes.holder()[0] == KACTL
    assert bench.eyes.holder()[1] >= before[1]
    rules(bench, KACTL)


def rules(bench: Bench, controller: int) -> None:
    """See that an instance rules: a topic that it is asked for is created, led and whole, under its epoch."""
    holder, epoch = bench.eyes.holder()
    topic = f"under-{epoch}"
    bench.create(topic, "--partitions", "3", "--replication-factor", "3", partitions=3)
    states = bench.eyes.states_of(topic)
    bench.delete(topic)

    assert holder == controller
    assert len(states) == 3
    assert all(state.leader != -1 and state.controller_epoch == epoch for state in states.values())

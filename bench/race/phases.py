"""Phases of the race, and their begin and end.

cold start          from the start of the process, without any controller, until the last broker has LeaderAndIsr for
                    all its replicas (isr) and UpdateMetadata for all partitions (metadata); total is the later of the
                    two, election the creation of its /controller, `after election` the rest
standby failover    from the creation of the contender's /controller, by ZooKeeper's clock, until the same; it was an
                    idle standby before; election: from the deletion of the former /controller until then
warm failover       the same, after /controller was deleted while the controller was running
broker failure      from a broker's request to ZooKeeper to end its session until all live replicas (isr) and all live
                    brokers (metadata) have the raised leader epoch of every partition that it led; shrink and
                    `shrink metadata` are the same for the partitions that it followed
broker return       from its request to register until it has LeaderAndIsr for all its replicas (isr) and
                    UpdateMetadata for all partitions (metadata)
isr notification    from the request for the first notification (the ISRs were expanded in ZooKeeper before) until all
                    brokers have UpdateMetadata for these partitions
preferred election  from the request, for all partitions that prefer the returned broker, until all replicas (isr) and
                    all brokers (metadata) have their raised leader epochs
topic deletion      from the transaction that marks a tenth of all topics until no mark is left (total); stop: the last
                    StopReplica that deletes; metadata: all brokers have the topics as being deleted
takeover            as standby failover, after SIGKILL of the controller; election: from there, mostly the timeout of
                    its session
"""

import time
from collections.abc import Callable
from typing import Final

from .control import Leave, Return
from .expectations import Expectation, RequestName
from .scene import Phase, Scene
from .tree import Owner

# One topic of this many is deleted.
_DELETED_OF: Final = 10

_ISR: Final[RequestName] = "leader_and_isr"
_METADATA: Final[RequestName] = "update_metadata"


def cold_start(scene: Scene) -> None:
    """Starts a controller and waits until it has sent all state; then stops it for the next phase."""
    with scene.phase("cold start", _everything(scene)) as phase:
        began = scene.start()
        owner = scene.elected(None)
        phase.received(began)
        phase.total("isr", "metadata")
        phase.add("election", "s", owner.since - began)
        phase.add("after election", "s", phase.figures["total"][1] - (owner.since - began))
    scene.stop()


def standby_failover(scene: Scene) -> None:
    """Starts the contender as a standby while the race holds the controllership, then releases it."""
    held = scene.tree.hold()
    scene.stand_by()
    with scene.phase("standby failover", _everything(scene)) as phase:
        _fail_over(scene, phase, held, scene.tree.depose())


def warm_failover(scene: Scene) -> None:
    """Deletes /controller; the controller is elected again."""
    for _ in range(scene.settings.warm_failovers):
        with scene.phase("warm failover", _everything(scene)) as phase:
            held = scene.tree.owner()
            _fail_over(scene, phase, held, scene.tree.depose())


def broker_failure(scene: Scene) -> None:
    """Fails a broker with all its replicas."""
    victim = _victim(scene)
    led, followed = scene.tree.led_by(victim), scene.tree.followed_by(victim)
    live = [broker for broker in _brokers(scene) if broker != victim]
    expectations = {
        "isr": Expectation(request=_ISR, when="raised", partitions=led, brokers=live, hosted=True),
        "metadata": Expectation(request=_METADATA, when="raised", partitions=led, brokers=live),
        "shrink": Expectation(request=_ISR, when="raised", partitions=followed, brokers=live, hosted=True),
        "shrink metadata": Expectation(request=_METADATA, when="raised", partitions=followed, brokers=live),
    }
    with scene.phase("broker failure", expectations) as phase:
        began = scene.stubs.ask(Leave(victim)).at
        phase.received(began)
        phase.total("isr", "metadata")
        phase.add("last election written", "s", scene.tree.last_write(led) - began)
        phase.add("led", "count", len(led))
        phase.add("followed", "count", len(followed))


def broker_return(scene: Scene) -> None:
    """Returns the broker, which becomes a follower everywhere and is in no ISR."""
    victim = _victim(scene)
    others = [broker for broker in _brokers(scene) if broker != victim]
    moved = scene.tree.led_by(victim) + scene.tree.followed_by(victim)
    expectations = {
        "isr": Expectation(request=_ISR, when="received", brokers=[victim], hosted=True),
        "metadata": Expectation(request=_METADATA, when="received", brokers=[victim]),
        "others metadata": Expectation(request=_METADATA, when="received", partitions=moved, brokers=others),
    }
    with scene.phase("broker return", expectations) as phase:
        began = scene.stubs.ask(Return(victim)).at
        phase.received(began, optional=frozenset({"others metadata"}))
        phase.total("isr", "metadata")


def isr_notification(scene: Scene) -> None:
    """Adds the broker to the ISRs and notifies the controller as leaders do below protocol level 2.7."""
    victim = _victim(scene)
    grown = scene.tree.led_by(victim) + scene.tree.followed_by(victim)
    scene.tree.grow_isrs(grown)
    scene.rest()
    expectations = {
        "metadata": Expectation(request=_METADATA, when="received", partitions=grown, brokers=_brokers(scene))
    }
    with scene.phase("isr notification", expectations) as phase:
        phase.received(scene.tree.notify_isrs(grown))
        phase.total("metadata")


def preferred_election(scene: Scene) -> None:
    """Requests that the broker leads its preferred partitions again."""
    led = scene.tree.led_by(_victim(scene))
    expectations = {
        "isr": Expectation(request=_ISR, when="raised", partitions=led, brokers=_brokers(scene), hosted=True),
        "metadata": Expectation(request=_METADATA, when="raised", partitions=led, brokers=_brokers(scene)),
    }
    with scene.phase("preferred election", expectations) as phase:
        began = scene.tree.ask_preferred(led)
        phase.received(began)
        phase.total("isr", "metadata")
        phase.add("last election written", "s", scene.tree.last_write(led) - began)
        phase.add("partitions", "count", len(led))
        scene.tree.wait_preferred_done(alive=scene.require_alive, limit_s=scene.settings.phase_limit_s)


def topic_deletion(scene: Scene) -> None:
    """Deletes a tenth of the topics."""
    topics = range(0, scene.shape.topics, _DELETED_OF)
    doomed = scene.tree.partitions_of(topics)
    expectations = {
        "stop": Expectation(
            request="stop_replica", when="gone", partitions=doomed, brokers=_brokers(scene), hosted=True
        ),
        "metadata": Expectation(request=_METADATA, when="gone", partitions=doomed, brokers=_brokers(scene)),
    }
    with scene.phase("topic deletion", expectations) as phase:
        began = scene.tree.mark_deletions(topics)
        gone = scene.tree.wait_deleted(alive=scene.require_alive, limit_s=scene.settings.phase_limit_s)
        phase.received(began)
        phase.add("total", "s", gone - began)
        phase.add("topics", "count", len(topics))
        phase.add("topics left", "count", scene.tree.topics_left())
    scene.partitions = sorted(set(scene.partitions) - set(doomed))


def takeover(scene: Scene) -> None:
    """Kills the controller; a standby instance takes over."""
    scene.stand_by()
    with scene.phase("takeover", _everything(scene)) as phase:
        held = scene.tree.owner()
        killed_at = time.monotonic()
        scene.contenders.pop(0).kill()
        _fail_over(scene, phase, held, killed_at)


# In order of execution.
PHASES: Final[dict[str, Callable[[Scene], None]]] = {
    "cold start": cold_start,
    "standby failover": standby_failover,
    "warm failover": warm_failover,
    "broker failure": broker_failure,
    "broker return": broker_return,
    "isr notification": isr_notification,
    "preferred election": preferred_election,
    "topic deletion": topic_deletion,
    "takeover": takeover,
}

# Later phases depend on the others.
MAY_BE_SKIPPED: Final = ("cold start", "warm failover", "preferred election", "topic deletion")


def run(scene: Scene, say: Callable[[str, dict[str, float]], None]) -> None:
    """Runs the selected phases.

    Args:
        say: called with each completed phase and its times in seconds.

    Raises:
        HarnessError: a phase was not completed; those before it have been added.
    """
    for name, phase in PHASES.items():
        scene.times = {}
        if name not in scene.settings.skip:
            phase(scene)
        if scene.times:
            say(name, scene.times)
        if name == scene.settings.until:
            return


def _fail_over(scene: Scene, phase: Phase, former: Owner | None, asked: float) -> None:
    owner = scene.elected(former)
    phase.received(owner.since)
    phase.total("isr", "metadata")
    phase.add("election", "s", owner.since - asked)


def _everything(scene: Scene) -> dict[str, Expectation]:
    return {
        "isr": Expectation(
            request=_ISR, when="received", partitions=scene.partitions, brokers=_brokers(scene), hosted=True
        ),
        "metadata": Expectation(
            request=_METADATA, when="received", partitions=scene.partitions, brokers=_brokers(scene)
        ),
    }


def _brokers(scene: Scene) -> list[int]:
    return list(range(1, scene.shape.brokers + 1))


def _victim(scene: Scene) -> int:
    """Returns the broker that fails and returns: one in the middle."""
    return scene.shape.brokers // 2 + 1

"""`kactl whatif` and `kactl broker stoppable` with a server."""

import subprocess

import pytest

from kactl.admin.schema import Stoppable, WhatIf

from .server import KACTL, Up


def test_broker_that_holds_the_last_spare_replica_cannot_stop(own_up: Up) -> None:
    own_up("topic", "create", "bread", "--assignment", "0:1,2", "--config", "min.insync.replicas=2")
    own_up("topic", "create", "toast", "--assignment", "0:3")

    blocked = own_up("broker", "stoppable", "1")
    alone = own_up("broker", "stoppable", "3")
    own_up("topic", "set", "bread", "min.insync.replicas=1")
    allowed = own_up("broker", "stoppable", "1")
    read = own_up("broker", "stoppable", "1", "-o", "json").json(Stoppable)

    assert (blocked.code, blocked.out.splitlines()[1]) == (1, "1 partition would reject writes with acks=all: bread-0")
    assert blocked.out.startswith("Broker 1 cannot stop now. If 1 fails, every partition keeps a leader.")
    assert (alone.code, alone.out.splitlines()[1]) == (1, "1 partition would have no leader: toast-0")
    assert (allowed.code, len(allowed.out.splitlines())) == (0, 1)
    assert allowed.out.startswith("Broker 1 can stop now. ")
    assert (read.stoppable, read.last_in_sync.count) == (True, 1)


@pytest.mark.slow
def test_waits_until_the_broker_can_stop(own_up: Up) -> None:
    own_up("topic", "create", "bread", "--assignment", "0:1,2", "--config", "min.insync.replicas=2")
    assert own_up("broker", "stoppable", "1", "--wait", "--timeout", "1").code == 1

    # A process of its own: commands in this process share its environment.
    command = (*KACTL, "--server", own_up.url, "broker", "stoppable", "1", "--wait", "--timeout", "60", "-v")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as waiting:
        assert waiting.stderr is not None
        assert "stoppable -> 200" in waiting.stderr.readline()  # it has asked once
        own_up("topic", "set", "bread", "min.insync.replicas=1")
        out, _ = waiting.communicate(timeout=60)

    assert waiting.returncode == 0
    assert out.startswith("Broker 1 can stop now.")


def test_failures_of_the_running_cluster(own_up: Up) -> None:
    own_up("topic", "create", "bread", "--partitions", "6", "--replication-factor", "3")
    own_up("topic", "create", "toast", "--assignment", "0:3")

    text = own_up("whatif", "--kill", "1,2", "--kill", "3")
    read = own_up("whatif", "--kill", "1,2", "-o", "json").json(WhatIf)
    plan = own_up("whatif", "--restart", "2")

    assert text.code == 0
    assert text.out.startswith("7 of 7 partitions known.\nthe running cluster as of ")
    assert "If 1 and 2 fail, every partition keeps a leader." in text.out
    assert "If 3 fails, 1 partition of 1 topic has no leader" in text.out
    assert "scenarios over 7 partitions in" in text.err
    assert [(outcome.scenario.brokers, outcome.offline) for outcome in read.analysis.killed] == [((1, 2), 0)]
    assert plan.code == 0
    assert "1 step cannot be made harmless by any order" in plan.out


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--kill", "9"), 1, "kill[0].brokers[0]: there is no broker 9; there are 1, 2, 3"),
        (("--kill", "rack=a"), 1, "there is no rack 'a'; no broker is registered with a rack"),
        (("--kill", "a"), 2, "'a' is not a broker id: write 3,4, or rack=a for a rack"),
        (("--kill", ","), 2, "names no broker"),
        (("--sweep", "all"), 2, "'all' is not one of brokers, pairs, racks, rack+broker, rolling"),
        (("--sweep", "racks"), 1, "no broker is registered with a rack"),
        (("--restart", "0"), 2, "0 is not in the range"),
    ],
)
def test_bad_arguments_are_explained(up: Up, arguments: tuple[str, ...], code: int, words: str) -> None:
    done = up("whatif", *arguments)
    assert (done.code, done.out) == (code, "")
    assert words in done.err

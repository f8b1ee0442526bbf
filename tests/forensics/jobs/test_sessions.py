"""Session timeouts of lost brokers, from their own logs and those of others."""

from kactl.forensics.jobs.around import SessionLine, Sessions
from kactl.forensics.jobs.membership import FAILED, FENCED, Absence
from kactl.forensics.jobs.silence import CONFIGURED, DEFAULT, NEGOTIATED, OTHERS, Session

S = 1_000_000
DUMP = "broker.heartbeat.interval.ms={} broker.id={} broker.session.timeout.ms={} zookeeper.session.timeout.ms={}"


def dump(
    broker: int, *, at: int = 0, heartbeat: int = 2_000, kraft: int = 9_000, zookeeper: int = 18_000
) -> SessionLine:
    return SessionLine(broker, at, None, DUMP.format(heartbeat, broker, kraft, zookeeper))


def negotiated(broker: int, ms: int, *, at: int = 0) -> SessionLine:
    return SessionLine(broker, at, ms, "")


def of(
    *told: SessionLine, how: str = FAILED, broker: int = 1, versions: dict[int | None, set[str]] | None = None
) -> Session:
    lost = Absence(broker=broker, detected_us=0, how=how, controller=3)
    return Sessions(told, {}, versions or {}).of(lost)


def test_negotiated_timeout_precedes_configured() -> None:
    assert of(dump(1, zookeeper=30_000), negotiated(1, 20_000)) == Session(20 * S, NEGOTIATED)


def test_configured_timeout_precedes_other_brokers() -> None:
    assert of(dump(1, zookeeper=30_000), negotiated(2, 20_000)) == Session(30 * S, CONFIGURED)


def test_latest_negotiation_counts() -> None:
    assert of(negotiated(1, 20_000, at=5), negotiated(1, 6_000, at=2)) == Session(20 * S, NEGOTIATED)


def test_other_brokers_count_if_they_agree() -> None:
    assert of(negotiated(2, 20_000), negotiated(3, 20_000)) == Session(20 * S, OTHERS)
    assert of(dump(2, zookeeper=30_000), dump(3, zookeeper=30_000)) == Session(30 * S, OTHERS)
    assert of(negotiated(2, 20_000), negotiated(3, 6_000)).by == DEFAULT


def test_kraft_session_uses_controller_timeout_and_heartbeat() -> None:
    found = of(dump(1, heartbeat=500, kraft=4_000), dump(3, kraft=12_000), how=FENCED)

    assert found == Session(12 * S, CONFIGURED, 500_000)


def test_kraft_uses_other_nodes_without_controller_log() -> None:
    assert of(dump(2, kraft=12_000), how=FENCED) == Session(12 * S, OTHERS, 2 * S)


def test_default_of_the_version_is_assumed_without_logs() -> None:
    assert of(how=FENCED) == Session(9 * S, DEFAULT, 2 * S)
    assert of(versions={1: {"1.0-2.3"}}) == Session(6 * S, DEFAULT)
    assert of(versions={3: {"1.0-2.3"}}) == Session(6 * S, DEFAULT)  # the controller's, if it logs none itself
    assert of() == Session(18 * S, DEFAULT)

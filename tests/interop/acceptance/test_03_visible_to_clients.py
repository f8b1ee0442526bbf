"""kactl on the clients' listener too, so that tools do not need the inter-broker listener."""

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ..metadata import MetadataClient
from ..tools import TOPICS
from ..traffic import Traffic
from .bench import BROKERS, KACTL, MARGIN_S, Bench, until


@pytest.fixture
def visible(bench: Bench) -> Iterator[None]:
    """kactl, on both listeners."""
    restart(bench, "INTERNAL", "CLIENT")
    yield
    restart(bench, "INTERNAL")


def restart(bench: Bench, *visible_on: str) -> None:
    bench.kactl.stop()
    bench.kactl.configure(takeover=True, visible_on=visible_on)
    bench.kactl.start()
    until(lambda: all((KACTL in seen(bench, broker)) == ("CLIENT" in visible_on) for broker in BROKERS), "it", MARGIN_S)
    bench.rest()


def seen(bench: Bench, broker: int) -> dict[int, tuple[str, int]]:
    """Return the brokers in the metadata of a client of one broker."""
    with MetadataClient(bench.cluster[broker].client_port) as client:
        return client.look().brokers


@pytest.mark.checklist(3)
@pytest.mark.usefixtures("visible")
def test_tools_reach_visible_kactl_on_the_clients_listener(bench: Bench) -> None:
    """With lists, kactl lists no requests of producers on this listener. An idempotent producer of librdkafka gives up
    if its first connection after the bootstrap is one to kactl, so that one without producer ids writes there."""
    bootstrap = bench.cluster.bootstrap
    tools_bootstrap = f"127.0.0.1:{bench.kactl.client_port}" if bench.is_secure else bootstrap
    with Traffic(bootstrap, "seen", group="readers-3", idempotent=not bench.is_secure) as traffic:
        traffic.wait_acknowledged(200, timeout_s=MARGIN_S)
        created = bench.tools.run(
            TOPICS, "--bootstrap-server", tools_bootstrap, "--create", "--topic", "by-tool",
            "--partitions", "3", "--replication-factor", "3",
        )  # fmt: skip
        admin = AdminClient({"bootstrap.servers": tools_bootstrap})
        admin.create_topics([NewTopic("by-client", 3, 3)])["by-client"].result(MARGIN_S)
        deleted = [future.result(MARGIN_S) for future in admin.delete_topics(["by-tool", "by-client"]).values()]
        # A broker's responses come from a broker, also through kactl.
        with MetadataClient(bench.kactl.client_port) as client:
            relayed = client.look()
        traffic.finish(timeout_s=MARGIN_S)

    assert created.well().lines == ["Created topic by-tool."]
    assert deleted == [None, None]
    assert relayed.controller == KACTL
    assert relayed.brokers == seen(bench, 1)
    assert relayed.brokers[KACTL] == ("127.0.0.1", bench.kactl.client_port)
    assert {f"seen-{number}" for number in range(3)} <= relayed.leaders.keys()
    assert traffic.acknowledged <= traffic.read
    assert not traffic.errors

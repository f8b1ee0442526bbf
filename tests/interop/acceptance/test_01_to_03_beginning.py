"""Start of a cluster under kactl, and the metadata of clients."""

import pytest

from ..journal import Kind
from ..metadata import MetadataClient
from ..traffic import Traffic
from .bench import BALLAST, BALLAST_PARTITIONS, BROKERS, KACTL, MARGIN_S, Bench, as_json, is_registration, until


@pytest.mark.checklist(1)
def test_kactl_controls_an_empty_zookeeper_and_new_brokers(bench: Bench) -> None:
    until(bench.ruled, "three brokers that were told of each other", MARGIN_S)

    written = [write for write in bench.journal() if write.kind is not Kind.END_SESSION]
    controller_writes = [write for write in written if write.path == "/controller"]
    came = [write for write in written if is_registration(write)]
    assert [(write.kind, as_json(write)["brokerid"]) for write in controller_writes] == [(Kind.CREATE, KACTL)]
    assert controller_writes[0].zxid < min(write.zxid for write in came)
    assert len(came) == len(BROKERS)
    assert bench.reader.holder() == (KACTL, 1)


@pytest.mark.checklist(2)
def test_auto_created_topic_is_written_and_read(bench: Bench) -> None:
    with Traffic(bench.cluster.bootstrap, "orders") as traffic:
        traffic.wait_acknowledged(500, timeout_s=MARGIN_S)
        traffic.finish(timeout_s=MARGIN_S)

    assert len(traffic.acknowledged) >= 500
    assert traffic.acknowledged <= traffic.read
    assert not traffic.errors
    assert sorted(bench.reader.states_of("orders")) == ["orders-0", "orders-1", "orders-2"]
    bench.rest()


@pytest.mark.checklist(3)
def test_clients_see_the_brokers_and_brokers_also_see_kactl(bench: Bench) -> None:
    by_client = {broker.id: ("127.0.0.1", broker.client_port) for broker in bench.cluster.brokers}
    by_broker = {broker.id: ("127.0.0.1", broker.internal_port) for broker in bench.cluster.brokers}

    for broker in bench.cluster.brokers:
        with MetadataClient(broker.client_port) as client:
            to_client = client.look()
        assert (to_client.controller, to_client.brokers) == (KACTL, by_client)
        if bench.is_secure:
            continue  # this client has no login for the other listener, on which the tools find kactl
        with MetadataClient(broker.internal_port) as internal:
            to_broker = internal.look()
        assert to_broker.controller == KACTL
        assert to_broker.brokers == by_broker | {KACTL: ("127.0.0.1", bench.kactl.internal_port)}


def test_ballast_topic_is_created_for_balancing(bench: Bench) -> None:
    count = str(BALLAST_PARTITIONS)
    bench.create(BALLAST, "--partitions", count, "--replication-factor", "3", partitions=BALLAST_PARTITIONS)

    # With racks, replicas are placed so that all topics together are balanced: those that brokers have placed, too.
    firsts = [replicas[0] for replicas in bench.reader.assignments().values()]
    assert all(abs(firsts.count(broker) - len(firsts) / len(BROKERS)) <= 1 for broker in BROKERS)

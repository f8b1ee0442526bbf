"""What Kafka's loggers also say and nobody asks for: it is known, and so it is not told as not understood."""

import pytest

from kactl.pipeline.event_types import Kind
from kactl.pipeline.text.dispatch import is_chatter

from .reading import events_of

SAID = [
    "[RequestSendThread controllerId=1] Controller 1 fails to send a request to broker host-3:9092 (id: 3 rack: null)",
    "[Broker id=2] Skipped the adding-fetcher step of the become-follower state change with correlation id 22 from "
    "controller 1 epoch 2 for partition a-0 with leader 3 since it is shutting down",
    "[Controller id=2] Resigning",
    "[Controller id=3] Broker 1 was elected as controller instead of broker 3",
    "[Controller id=1] All shutting down brokers: 2",
    "[Controller id=1] Live brokers: 1,3",
    "[Controller id=1] All leaders = a-0 -> (Leader:3,ISR:3,LeaderRecoveryState:RECOVERED,LeaderEpoch:3,ZkVersion:4,"
    "ControllerEpoch:2)",
    "[Controller id=1] Waiting for any successful result for election type (PREFERRED) by AdminClientTriggered for "
    "partitions: HashMap(a-0 -> Right(3))",
    "[QuorumController id=1] Creating new QuorumController with clusterId 4L6g3nShT-eMCtK--X86sw.",
    "[QuorumController id=1] registerBroker: event failed with NotControllerException in 7979 microseconds. Exception "
    "message: The active controller appears to be node 1.",
    "[QuorumController id=1] Performing controller activation. The metadata log appears to be empty.",
    "[QuorumController id=1] Replayed a FeatureLevelRecord setting metadata.version to 3.9-IV0",
    "[QuorumController id=1] Replayed TopicRecord for topic orders with topic ID 4NrZhavzS4SZ-yfUOACJhw.",
    "[QuorumController id=1] No previous registration found for broker 3. New broker epoch is 6.",
    "[QuorumController id=1] Registering a new incarnation of broker 2. Broker epoch will become 240.",
    "[QuorumController id=1] handleBrokerFenced: changing 3 partition(s)",
    "[QuorumController id=1] processExpiredBrokerHeartbeat: controller event queue overloaded. Timed out heartbeat.",
    "[QuorumController id=1] Rejecting AlterPartition request from node 3 for orders-2 because the current partition "
    "epoch is 3, not 2.",
    "[QuorumController id=1] Rejecting AlterPartition request for unknown partition orders-2.",
    "[QuorumController id=1] Fenced broker 2 has requested and been granted an immediate shutdown.",
    "[QuorumController id=1] The request from broker 2 to shut down has been granted since the lowest active offset 99 "
    "is now greater than the broker's controlled shutdown offset 90.",
    "[Broker id=1] Transitioning 1 partition(s) to local leaders.",
    "[Broker id=1] Creating new partition orders-0 with topic id 4NrZhavzS4SZ-yfUOACJhw.",
    "[Broker id=1] Started fetchers as part of become-follower for 2 partitions",
    "[Broker id=1] Skipped the become-leader state change for orders-0 with topic id Some(4NrZhavzS4SZ-yfUOACJhw)",
    "[Broker id=2] The topic partition a-0 was marked as RECOVERING. Marking the topic partition as RECOVERED.",
]


@pytest.mark.parametrize("message", SAID)
def test_what_tells_nothing_is_known(message: str) -> None:
    text = f"[2024-05-01 10:00:00,123] INFO {message} (kafka.controller.KafkaController)\n"

    (event,) = events_of(text, kind=Kind.CONTROLLER)

    assert (event["type"], event["lines"]) == ("other", 1)


def test_what_is_not_known_is_no_chatter() -> None:
    assert not is_chatter(b"Resigning is what it never did before")
    assert not is_chatter(b"All is well")
    assert not is_chatter(b"Replayed PartitionRecord for what has another form")

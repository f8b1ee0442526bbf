"""Leaders with given tokens."""

from kactl.model import TopicPartition
from kactl.participant.leases.leader import Leader
from kactl.participant.leases.lease import ENDED, Lease
from kactl.participant.leases.token import FencingToken

TOPIC_ID, OTHER_ID = bytes(range(16)), b"b" * 16


def leader(controller_epoch: int, leader_epoch: int, *, topic_id: bytes = TOPIC_ID, valid: bool = True) -> Leader:
    return Leader(
        TopicPartition("jobs", 7),
        FencingToken(controller_epoch, leader_epoch, topic_id),
        isr=(1,),
        lease=Lease(1) if valid else ENDED,
        now_ns=lambda: 0,
    )

"""A broker's lines in server.log: its partitions, its ZooKeeper session, and fetches without a response.

The partition of a line is named in its prefix. Source of the session and fetch lines: ZooKeeper's ClientCnxn, Kafka's
NetworkClient and FetchSessionHandler.
"""

from functools import partial
from typing import Final

from kactl.forensics.event_types import EventType, Role
from kactl.forensics.text.format import Format, line

_broker: Final = partial(line, role=Role.BROKER)
_OLD: Final = r"Partition {OLD_TP} on broker {speaker:int}: "
_FROM_TO: Final = r"(?: for partition \S+)? from {prev_isr:ids} to {isr:ids}"

FORMATS: Final[tuple[Format, ...]] = (
    _broker(
        "I1",
        EventType.ISR_SHRUNK,
        r"Shrinking ISR"
        + _FROM_TO
        + r"(?:\. Leader: \(highWatermark: {high_watermark:int}, endOffset: {log_end:int}\)\. "
        r"Out of sync replicas: {text:rest})?\.?",
        by_prefix=True,
    ),
    _broker("I2", EventType.ISR_EXPANDED, r"Expanding ISR" + _FROM_TO, until=(2, 7), by_prefix=True),
    _broker(
        "I3",
        EventType.ISR_UPDATED,
        r"ISR updated to \[?{isr:ids}\]? (?:\(under-min-isr\) )?and (?:version|zkVersion) updated to "
        r"\[?{partition_epoch:int}\]?",
        by_prefix=True,
    ),
    _broker(
        "I4",
        EventType.ISR_REFUSED,
        r"Cached zkVersion \[?{partition_epoch:int}\]? not equal to that in zookeeper, skip updating ISR",
        by_prefix=True,
    ),
    _broker("I5", EventType.TRUNCATED, r"Truncating to offset {log_end:int}", by_prefix=True),
    _broker("I5-1.0", EventType.TRUNCATED, r"Truncating log {TP} to offset {log_end:int}\.", until=(1, 0)),
    # Before 1.0, the partition is [topic,0], not topic-0.
    _broker(
        "I1-0.8",
        EventType.ISR_SHRUNK,
        _OLD + r"Shrinking ISR for partition \[\S+\] from {prev_isr:ids} to {isr:ids}",
        since=(0, 8),
        until=(0, 11),
    ),
    _broker(
        "I2-0.8",
        EventType.ISR_EXPANDED,
        _OLD + r"Expanding ISR for partition \[\S+\] from {prev_isr:ids} to {isr:ids}",
        since=(0, 8),
        until=(0, 11),
    ),
    _broker(
        "N1",
        EventType.SESSION_NEGOTIATED,
        r"Session establishment complete on server \S+, (?:session id|sessionid) = 0x\w+, "
        r"negotiated timeout = {took_ms:int}",
        since=(0, 8),
    ),
    _broker(
        "N2",
        EventType.FETCH_UNANSWERED,
        r"Cancelled in-flight FETCH request with correlation id \d+ due to node {broker:int} being disconnected "
        r"\(elapsed time since creation: \d+ms, elapsed time since send: {took_ms:int}ms,.*\)",
        since=(2, 7),
    ),
    _broker(
        "N3",
        EventType.FETCH_UNANSWERED,
        r"Error sending fetch request \(sessionId=\w+, epoch=\w+\) to node {broker:int}:.*",
    ),
)

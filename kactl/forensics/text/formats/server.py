"""A broker about the partitions it leads or copies, in server.log; the prefix names the partition."""

from typing import Final

from kactl.forensics.event_types import EventType, Role
from kactl.forensics.text.format import Format, line

_B: Final = Role.BROKER
_OLD: Final = r"Partition {OLD_TP} on broker {speaker:int}: "
_FROM_TO: Final = r"(?: for partition \S+)? from {prev_isr:ids} to {isr:ids}"

FORMATS: Final[tuple[Format, ...]] = (
    line(
        "I1",
        EventType.ISR_SHRUNK,
        _B,
        r"Shrinking ISR"
        + _FROM_TO
        + r"(?:\. Leader: \(highWatermark: {high_watermark:int}, endOffset: {log_end:int}\)\. "
        r"Out of sync replicas: {text:rest})?\.?",
        by_prefix=True,
    ),
    line("I2", EventType.ISR_EXPANDED, _B, r"Expanding ISR" + _FROM_TO, until=(2, 7), by_prefix=True),
    line(
        "I3",
        EventType.ISR_UPDATED,
        _B,
        r"ISR updated to \[?{isr:ids}\]? (?:\(under-min-isr\) )?and (?:version|zkVersion) updated to "
        r"\[?{partition_epoch:int}\]?",
        by_prefix=True,
    ),
    line(
        "I4",
        EventType.ISR_REFUSED,
        _B,
        r"Cached zkVersion \[?{partition_epoch:int}\]? not equal to that in zookeeper, skip updating ISR",
        by_prefix=True,
    ),
    line("I5", EventType.TRUNCATED, _B, r"Truncating to offset {log_end:int}", by_prefix=True),
    line("I5-1.0", EventType.TRUNCATED, _B, r"Truncating log {TP} to offset {log_end:int}\.", until=(1, 0)),
    # The comma stands behind the topic, not behind the dash, before 1.0.
    line(
        "I1-0.8",
        EventType.ISR_SHRUNK,
        _B,
        _OLD + r"Shrinking ISR for partition \[\S+\] from {prev_isr:ids} to {isr:ids}",
        since=(0, 8),
        until=(0, 11),
    ),
    line(
        "I2-0.8",
        EventType.ISR_EXPANDED,
        _B,
        _OLD + r"Expanding ISR for partition \[\S+\] from {prev_isr:ids} to {isr:ids}",
        since=(0, 8),
        until=(0, 11),
    ),
)

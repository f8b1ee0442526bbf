"""A broker's lines in server.log: its partitions, its ZooKeeper session, and fetches without a response.

The partition of a line is named in its prefix. Source of the session and fetch lines: ZooKeeper's ClientCnxn, Kafka's
NetworkClient and FetchSessionHandler.
"""

from typing import Final

from kactl.forensics.text.format import read_formats

FORMATS: Final = read_formats(
    r"""
{OLD}
    Partition {OLD_TP} on broker {speaker:int}:
{FROM_TO}
    (?: for partition \S+)? from {prev_isr:ids} to {isr:ids}

[broker]
I1 isr-shrunk by_prefix
    Shrinking ISR{FROM_TO}(?:\. Leader: \(highWatermark: {high_watermark:int}, endOffset: {log_end:int}\)\. Out of sync
    replicas: {text:rest})?\.?
I2 isr-expanded until=2.7 by_prefix
    Expanding ISR{FROM_TO}
I3 isr-updated by_prefix
    ISR updated to \[?{isr:ids}\]? (?:\(under-min-isr\) )?and (?:version|zkVersion) updated to
    \[?{partition_epoch:int}\]?
I4 isr-refused by_prefix
    Cached zkVersion \[?{partition_epoch:int}\]? not equal to that in zookeeper, skip updating ISR
I5 truncated by_prefix
    Truncating to offset {log_end:int}
I5-1.0 truncated until=1.0
    Truncating log {TP} to offset {log_end:int}\.
# Before 1.0, the partition is [topic,0], not topic-0.
I1-0.8 isr-shrunk since=0.8 until=0.11
    {OLD} Shrinking ISR for partition \[\S+\] from {prev_isr:ids} to {isr:ids}
I2-0.8 isr-expanded since=0.8 until=0.11
    {OLD} Expanding ISR for partition \[\S+\] from {prev_isr:ids} to {isr:ids}
N1 session-negotiated since=0.8
    Session establishment complete on server \S+, (?:session id|sessionid) = 0x\w+, negotiated timeout = {took_ms:int}
N2 fetch-unanswered since=2.7
    Cancelled in-flight FETCH request with correlation id \d+ due to node {broker:int} being disconnected \(elapsed time
    since creation: \d+ms, elapsed time since send: {took_ms:int}ms,.*\)
N3 fetch-unanswered
    Error sending fetch request \(sessionId=\w+, epoch=\w+\) to node {broker:int}:.*
"""
)

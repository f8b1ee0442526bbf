"""How long sessions live, and brokers that stop answering, in server.log.

Source: ZooKeeper's ClientCnxn, and Kafka's NetworkClient and FetchSessionHandler.
"""

from typing import Final

from kactl.forensics.event_types import EventType, Role
from kactl.forensics.text.format import Format, line

_B: Final = Role.BROKER

FORMATS: Final[tuple[Format, ...]] = (
    line(
        "N1",
        EventType.SESSION_NEGOTIATED,
        _B,
        r"Session establishment complete on server \S+, (?:session id|sessionid) = 0x\w+, "
        r"negotiated timeout = {took_ms:int}",
        since=(0, 8),
    ),
    line(
        "N2",
        EventType.FETCH_UNANSWERED,
        _B,
        r"Cancelled in-flight FETCH request with correlation id \d+ due to node {broker:int} being disconnected "
        r"\(elapsed time since creation: \d+ms, elapsed time since send: {took_ms:int}ms,.*\)",
        since=(2, 7),
    ),
    line(
        "N3",
        EventType.FETCH_UNANSWERED,
        _B,
        r"Error sending fetch request \(sessionId=\w+, epoch=\w+\) to node {broker:int}:.*",
    ),
)

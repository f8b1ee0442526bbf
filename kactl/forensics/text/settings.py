"""Settings in the configuration dump with which a broker starts.

    [2024-05-01 10:00:00,123] INFO KafkaConfig values:
        broker.id = 3
        zookeeper.session.timeout.ms = 18000
        ...
     (kafka.server.KafkaConfig)

In most layouts the first line of a dump has no logger and so begins no record; the dump continues the record before it.
"""

import re
from typing import Final

BROKER_ID: Final = "broker.id"
NODE_ID: Final = "node.id"
ZOOKEEPER_SESSION: Final = "zookeeper.session.timeout.ms"
KRAFT_SESSION: Final = "broker.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "broker.heartbeat.interval.ms"
WANTED: Final = (BROKER_ID, NODE_ID, ZOOKEEPER_SESSION, KRAFT_SESSION, HEARTBEAT_INTERVAL)
# A dump has each of them once. Two dumps in one record, as of two brokers in one stream, are cut off behind this.
COUNT_LIMIT: Final = 16

# Looked for first: nearly no other line that continues a record has it.
MARK: Final = b" = "
_SETTING: Final = re.compile(
    rb"\s*(" + b"|".join(re.escape(name).encode() for name in WANTED) + rb") = (-?\d{1,18})\s*"
)


def setting(line: bytes) -> bytes | None:
    """`name=value` if the line is one of those wanted, or else None."""
    found = _SETTING.fullmatch(line)
    return None if found is None else b"%b=%b" % (found[1], found[2])


def value(text: str, name: str) -> int | None:
    """The value of a setting in what `setting` returned of several lines, joined by spaces."""
    for each in text.split():
        key, _, digits = each.partition("=")
        if key == name:
            return int(digits)
    return None


def broker(line: bytes) -> int | None:
    """The broker's id in the same; None if it has none, or one that is still to be generated."""
    text = line.decode("ascii")
    ids = [found for name in (NODE_ID, BROKER_ID) if (found := value(text, name)) is not None]
    return next((found for found in ids if 0 <= found < 2**31), None)

"""Settings in the configuration dump that a broker writes at startup.

    [2024-05-01 10:00:00,123] INFO KafkaConfig values:
        broker.id = 3
        zookeeper.session.timeout.ms = 18000
        ...
     (kafka.server.KafkaConfig)

In most layouts the logger follows the dump. All of its lines are one record.
"""

import re
from typing import Final

BROKER_ID: Final = "broker.id"
NODE_ID: Final = "node.id"
ZOOKEEPER_SESSION: Final = "zookeeper.session.timeout.ms"
KRAFT_SESSION: Final = "broker.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "broker.heartbeat.interval.ms"
WANTED: Final = (BROKER_ID, NODE_ID, ZOOKEEPER_SESSION, KRAFT_SESSION, HEARTBEAT_INTERVAL)
# Limit per record. A dump has each setting once; two brokers in one stream may put two dumps into one record.
COUNT_LIMIT: Final = 16

# A cheap first test: almost no other line that continues a record contains it.
MARK: Final = b" = "
_SETTING: Final = re.compile(
    rb"\s*(" + b"|".join(re.escape(name).encode() for name in WANTED) + rb") = (-?\d{1,18})\s*"
)


def setting(line: bytes) -> bytes | None:
    """Returns `name=value` if the line is one of the wanted settings, else None."""
    match = _SETTING.fullmatch(line)
    return None if match is None else b"%b=%b" % (match[1], match[2])


def value(text: str, name: str) -> int | None:
    """Returns the value of a setting in results of `setting`, joined by spaces; None if it is absent."""
    for pair in text.split():
        key, _, digits = pair.partition("=")
        if key == name:
            return int(digits)
    return None


def broker(line: bytes) -> int | None:
    """Returns the broker's id in the same text; None if it is absent or still to be generated."""
    text = line.decode("ascii")
    ids = [id for name in (NODE_ID, BROKER_ID) if (id := value(text, name)) is not None]
    return next((id for id in ids if 0 <= id < 2**31), None)

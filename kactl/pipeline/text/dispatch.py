"""Which format a message has: looked up by its first word, then tried one after the other.

No message has two formats; a test holds every known line against all of them.
"""

from typing import Final

from .format import Format
from .formats import broker, controllership, controlling, kraft, legacy, partitions, replicas, sending, server

# The most frequent first, among those with the same first word.
FORMATS: Final[tuple[Format, ...]] = (
    *partitions.FORMATS,
    *replicas.FORMATS,
    *sending.FORMATS,
    *broker.FORMATS,
    *server.FORMATS,
    *controllership.FORMATS,
    *controlling.FORMATS,
    *kraft.FORMATS,
    *legacy.FORMATS,
)
BY_ID: Final = {each.id: each for each in FORMATS}

# Loggers whose every line should be understood.
_OURS: Final = (b"state.change.logger", b"kafka.controller", b"org.apache.kafka.controller")


def _by_head() -> dict[bytes | None, tuple[Format, ...]]:
    heads: dict[bytes | None, tuple[Format, ...]] = {}
    for each in FORMATS:
        heads[each.head] = (*heads.get(each.head, ()), each)
    return heads


# Those of None begin with a number or a partition, and so with no first word of the others.
BY_HEAD: Final = _by_head()


def is_ours(logger: bytes) -> bool:
    """Whether a logger writes what should be understood."""
    return logger.startswith(_OURS)

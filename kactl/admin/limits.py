"""Bounds of the admin API's connections, and how many of them the process has descriptors for."""

import dataclasses
import resource
from typing import Final

from kactl.errors import BadConfig

# -- one connection ----------------------------------------------------------------------------------------------------

# A client sends its head at once; the rest is for slow networks.
HEAD_TIMEOUT_S: Final = 10.0
# Longer than the interval of most pollers, so that their connections stay.
IDLE_TIMEOUT_S: Final = 60.0
# For the first bytes of a body; the rest must arrive at BODY_BYTES_PER_S on average.
BODY_GRACE_S: Final = 5.0
BODY_BYTES_PER_S: Final = 64 * 1024
# A client that takes nothing of its response for so long is gone.
UNREAD_TIMEOUT_S: Final = 30.0
# The longest `timeout_ms` of a request, and the time to answer that it was exceeded.
ANSWER_TIMEOUT_S: Final = 330.0
# How long the rest of a body that nobody wants is read, so that the client sees the response and no reset.
LINGERING_S: Final = 2.0
LINE_BYTES_MAX: Final = 8190
FIELD_BYTES_MAX: Final = 8190
FIELDS_MAX: Final = 64
HEAD_BYTES_MAX: Final = 32 * 1024
# A client that polls each second reconnects a few times a day; per-connection state cannot grow without end.
REQUESTS_PER_CONNECTION_MAX: Final = 10_000

# -- all of them -------------------------------------------------------------------------------------------------------

# Dashboards and scripts of a team; each costs some 50 kB.
CONNECTIONS_MAX: Final = 256
# Beyond that, for connections that are answered a probe and nothing else.
PROBE_CONNECTIONS: Final = 16
# A place in the ring costs little; a hundred clients that all get every event take half a core at full rate.
STREAMS_MAX: Final = 100
# A new connection may send its first bytes before it can be replaced: a round trip, and a turn of a busy client.
FRESH_S: Final = 0.1
# Handlers at work, also for clients that are gone: each may hold a page of partitions.
REQUESTS_AT_ONCE_MAX: Final = 256
# Store, log, brokers and participants of this process.
OTHER_DESCRIPTORS: Final = 64
DESCRIPTORS_MIN: Final = 128


@dataclasses.dataclass(frozen=True, slots=True)
class Capacity:
    """How much of each may be open at one time."""

    connections: int = CONNECTIONS_MAX
    probes: int = PROBE_CONNECTIONS
    streams: int = STREAMS_MAX


def descriptors_max() -> int:
    """The soft limit of this process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 if soft == resource.RLIM_INFINITY else soft


def capacity(descriptors: int, *, others: int = 0) -> Capacity:
    """What fits into a number of descriptors, shared in proportion with `others`: the Kafka listener's connections.

    Raises:
        BadConfig: too few descriptors for a controller.
    """
    if descriptors < DESCRIPTORS_MIN:
        raise BadConfig(
            "ulimit -n",
            f"is {descriptors}: a server needs {DESCRIPTORS_MIN} file descriptors at least, raise the limit",
        )
    wanted = CONNECTIONS_MAX + PROBE_CONNECTIONS
    free = descriptors - OTHER_DESCRIPTORS
    # A small share would leave no room beside the probes.
    share = min(wanted, max(2 * PROBE_CONNECTIONS, free * wanted // (wanted + others)))
    connections = share - PROBE_CONNECTIONS
    return Capacity(connections, PROBE_CONNECTIONS, min(STREAMS_MAX, connections * STREAMS_MAX // CONNECTIONS_MAX))

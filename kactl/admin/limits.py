"""Limits of the admin API's connections, and their share of the process's file descriptors."""

import dataclasses
import resource
from typing import Final

from kactl.model.errors import BadConfig

# -- one connection ----------------------------------------------------------------------------------------------------

# A client sends a head at once; the rest of the time is for slow networks.
HEAD_TIMEOUT_S: Final = 10.0
# Longer than the interval of most pollers, so that their connections are kept alive.
IDLE_TIMEOUT_S: Final = 60.0
# For the first bytes of a body; the rest must arrive at BODY_BYTES_PER_S on average.
BODY_GRACE_S: Final = 5.0
BODY_BYTES_PER_S: Final = 64 * 1024
# A client that does not read its response for this long is considered dead.
UNREAD_TIMEOUT_S: Final = 30.0
# The longest `timeout_ms` of a request, plus the time to respond that it was exceeded.
ANSWER_TIMEOUT_S: Final = 330.0
# The rest of an unread body is received for this long, so that the client gets the response and not a reset.
LINGERING_S: Final = 2.0
LINE_BYTES_MAX: Final = 8190
FIELD_BYTES_MAX: Final = 8190
FIELDS_MAX: Final = 64
HEAD_BYTES_MAX: Final = 32 * 1024
# Bounds the state per connection; a client that polls each second reconnects a few times a day.
REQUESTS_PER_CONNECTION_MAX: Final = 10_000

# -- all connections ---------------------------------------------------------------------------------------------------

# Dashboards and scripts of a team; a connection costs about 50 kB, with TLS 70 kB.
CONNECTIONS_MAX: Final = 256
# In addition, for connections that only receive responses to probes.
PROBE_CONNECTIONS: Final = 16
# Of the address for probes alone, if there is one: load balancers and orchestrators.
PROBE_ADDRESS_CONNECTIONS: Final = 32
# A position in the ring costs little; a hundred clients that receive every event use half a core at full rate.
STREAMS_MAX: Final = 100
# Of these, streams of one client.
STREAMS_PER_CLIENT_MAX: Final = 10
# Connections of one address that is not a loopback address.
CONNECTIONS_PER_ADDRESS_MAX: Final = 64
# A new connection cannot be replaced for this long: a round trip, and one turn of a busy client.
FRESH_S: Final = 0.1
# Plans and explanations of one client at a time: each may take a thread for seconds.
HEAVY_MAX: Final = 2
# Running handlers, including those of disconnected clients: each may hold a page of partitions.
REQUESTS_AT_ONCE_MAX: Final = 256
# Store, log, brokers and participants of this process.
OTHER_DESCRIPTORS: Final = 64
DESCRIPTORS_MIN: Final = 128


@dataclasses.dataclass(frozen=True, slots=True)
class Capacity:
    """The maximum number of open connections and streams."""

    connections: int = CONNECTIONS_MAX
    probes: int = PROBE_CONNECTIONS
    streams: int = STREAMS_MAX
    streams_per_client: int = STREAMS_PER_CLIENT_MAX


def descriptors_max() -> int:
    """Returns the soft limit of this process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 if soft == resource.RLIM_INFINITY else soft


def capacity(descriptors: int, *, others: int = 0) -> Capacity:
    """Returns the connections that fit, shared in proportion with `others`, the connections of the Kafka listener.

    Raises:
        BadConfig: too few descriptors for a controller.
    """
    if descriptors < DESCRIPTORS_MIN:
        raise BadConfig(
            "ulimit -n",
            f"is {descriptors}: a server needs at least {DESCRIPTORS_MIN} file descriptors; raise the limit",
        )
    wanted = CONNECTIONS_MAX + PROBE_CONNECTIONS
    free = descriptors - OTHER_DESCRIPTORS
    # A smaller share would leave no connections beside the probes.
    share = min(wanted, max(2 * PROBE_CONNECTIONS, free * wanted // (wanted + others)))
    connections = share - PROBE_CONNECTIONS
    return Capacity(connections, PROBE_CONNECTIONS, min(STREAMS_MAX, connections * STREAMS_MAX // CONNECTIONS_MAX))

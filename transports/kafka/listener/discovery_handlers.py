"""Handlers of ApiVersions and Metadata while no broker is available.

As long as a broker is registered, these requests are relayed: a broker supports all versions of all requests, and knows
the partitions of the cluster.
"""

from collections.abc import Callable
from typing import Any, Final

from kactl.errors import ErrorCode
from kactl.model import ZERO_ID, Broker
from kactl.transports.kafka.codec import endpoint_of

from .api_keys import API_VERSIONS, METADATA
from .apis import APIS
from .discovery_apis import API_VERSIONS_API
from .responses import Handler
from .schema import Values
from .served_controller import ServedController

_KEYS: Final = [
    {"api_key": api.key, "min_version": 0, "max_version": api.version_max}
    for api in sorted(APIS.values(), key=lambda api: api.key)
]
# Response to a request of an unknown version: the supported range, from which the client chooses.
UNSUPPORTED: Final[Values] = {
    "error_code": ErrorCode.UNSUPPORTED_VERSION,
    "api_keys": [{"api_key": API_VERSIONS, "min_version": 0, "max_version": API_VERSIONS_API.version_max}],
}


class DiscoveryHandlers:
    """Handlers of ApiVersions and Metadata.

    Args:
        listener_name: the listener to which the peer is connected; brokers are listed with the endpoint of that name.
        listed_as: returns kactl's own entry in the list of brokers; None if it has none.
    """

    def __init__(
        self, controller: ServedController, *, listener_name: str, listed_as: Callable[[], Broker | None]
    ) -> None:
        self._controller = controller
        self._listener_name = listener_name
        self._listed_as = listed_as

    def handlers(self) -> dict[int, Handler]:
        return {API_VERSIONS: self.on_api_versions, METADATA: self.on_metadata}

    async def on_api_versions(self, request: dict[str, Any], version: int) -> Values:
        return {"api_keys": _KEYS}

    async def on_metadata(self, request: dict[str, Any], version: int) -> Values:
        """Return the brokers. Every topic has the error LEADER_NOT_AVAILABLE, which makes clients retry."""
        own = self._listed_as()
        listed = [*self._controller.brokers(), *([] if own is None else [own])]
        brokers = [
            {"node_id": broker.id, "host": endpoint.host, "port": endpoint.port, "rack": broker.rack}
            for broker in sorted(listed, key=lambda broker: broker.id)
            if (endpoint := endpoint_of(broker, self._listener_name)) is not None
        ]
        active_id = self._controller.active_id
        return {
            "brokers": brokers,
            "controller_id": -1 if active_id is None else active_id,
            "topics": [
                {
                    "error_code": ErrorCode.LEADER_NOT_AVAILABLE,
                    "name": topic["name"] if version >= 12 else topic["name"] or "",
                    "topic_id": topic["topic_id"] or ZERO_ID,
                }
                for topic in request["topics"] or ()
            ],
        }

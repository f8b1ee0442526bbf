"""What is answered where no broker can be asked: what we understand, and that there is nobody but us.

As long as a broker lives its own answers are better: it has whole versions of everything, and knows the cluster.
"""

from collections.abc import Callable
from typing import Any, Final

from kactl.errors import ErrorCode
from kactl.model import ZERO_ID, Broker
from kactl.transports.kafka.codec import endpoint_of

from .api_keys import API_VERSIONS, METADATA
from .apis import APIS
from .discovery_apis import API_VERSIONS_API
from .responses import Answer
from .schema import Values
from .served_controller import Ruled

_KEYS: Final = [
    {"api_key": api.key, "min_version": 0, "max_version": api.version_max}
    for api in sorted(APIS.values(), key=lambda api: api.key)
]
# For a request of a version that nobody knows: our own range, from which the client chooses.
UNSUPPORTED: Final[Values] = {
    "error_code": ErrorCode.UNSUPPORTED_VERSION,
    "api_keys": [{"api_key": API_VERSIONS, "min_version": 0, "max_version": API_VERSIONS_API.version_max}],
}


class OwnAnswers:
    """See the module.

    Args:
        listener_name: through which the peer came; brokers are listed by their listener of this name.
        listed_as: our own entry in the list of brokers; None if we have none.
    """

    def __init__(self, ruled: Ruled, *, listener_name: str, listed_as: Callable[[], Broker | None]) -> None:
        self._ruled = ruled
        self._listener_name = listener_name
        self._listed_as = listed_as

    def answers(self) -> dict[int, Answer]:
        return {API_VERSIONS: self.on_api_versions, METADATA: self.on_metadata}

    async def on_api_versions(self, asked: dict[str, Any], version: int) -> Values:
        return {"api_keys": _KEYS}

    async def on_metadata(self, asked: dict[str, Any], version: int) -> Values:
        """Who is there. Of topics it says only that they have no leader, which makes clients ask again."""
        ours = self._listed_as()
        listed = [*self._ruled.brokers(), *([] if ours is None else [ours])]
        brokers = [
            {"node_id": broker.id, "host": endpoint.host, "port": endpoint.port, "rack": broker.rack}
            for broker in sorted(listed, key=lambda broker: broker.id)
            if (endpoint := endpoint_of(broker, self._listener_name)) is not None
        ]
        active_id = self._ruled.active_id
        return {
            "brokers": brokers,
            "controller_id": -1 if active_id is None else active_id,
            "topics": [
                {
                    "error_code": ErrorCode.LEADER_NOT_AVAILABLE,
                    "name": topic["name"] if version >= 12 else topic["name"] or "",
                    "topic_id": topic["topic_id"] or ZERO_ID,
                }
                for topic in asked["topics"] or ()
            ],
        }

"""Handlers of ApiVersions and Metadata.

A listener that relays requests relays these as well, as long as a broker is registered: a broker supports all versions
of all requests. One that relays nothing, because it authenticates its peers, answers them from the controller's table.
"""

from collections.abc import Callable
from typing import Any, Final

from kactl.decide.state.rows import Rows
from kactl.model import Broker
from kactl.model.errors import ErrorCode
from kactl.transports.kafka.codec import endpoint_of

from .api_keys import API_VERSIONS, METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE
from .apis import APIS
from .discovery_apis import API_VERSIONS_API
from .field_types import Values
from .relayed_apis import RELAYED_APIS
from .responses import Handler
from .sasl_apis import SASL_AUTHENTICATE_API, SASL_HANDSHAKE_API
from .served_controller import ServedController
from .topic_metadata import Listed, Named, TopicEntries, named

_KEYS: Final = [
    {"api_key": api.key, "min_version": 0, "max_version": api.version_max}
    for api in sorted(APIS.values(), key=lambda api: api.key)
]
# On a listener with logins. Messages after version 0 of SaslHandshake have no frames.
_KEYS_WITH_LOGIN: Final = [
    *_KEYS,
    {"api_key": SASL_HANDSHAKE, "min_version": 1, "max_version": SASL_HANDSHAKE_API.version_max},
    {"api_key": SASL_AUTHENTICATE, "min_version": 0, "max_version": SASL_AUTHENTICATE_API.version_max},
]
_KEYS_RELAYED: Final = [
    {"api_key": api.key, "min_version": 0, "max_version": api.version_max} for api in RELAYED_APIS.values()
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
        has_logins: whether peers log in.
        relays_checked: whether requests are relayed once they are authorized.
    """

    def __init__(
        self,
        controller: ServedController,
        *,
        listener_name: str,
        listed_as: Callable[[], Broker | None],
        has_logins: bool = False,
        relays_checked: bool = False,
    ) -> None:
        self._keys = sorted(
            [*(_KEYS_WITH_LOGIN if has_logins else _KEYS), *(_KEYS_RELAYED if relays_checked else ())],
            key=lambda entry: entry["api_key"],
        )
        self._controller = controller
        self._listener_name = listener_name
        self._listed_as = listed_as

    def handlers(self) -> dict[int, Handler]:
        return {API_VERSIONS: self.on_api_versions, METADATA: self.on_metadata}

    async def on_api_versions(self, request: dict[str, Any], version: int) -> Values:
        return {"api_keys": self._keys}

    async def on_metadata(self, request: dict[str, Any], version: int) -> Values:
        """Return the brokers, and topics from the controller's own table.

        Topics have the error LEADER_NOT_AVAILABLE, which makes clients retry, while another instance is active or no
        broker is registered.
        """
        live = self._controller.brokers() if self._controller.is_active else []
        own = self._listed_as()
        if own is not None:
            own = own.listed_among(live)
        reached = {
            broker: endpoint
            for broker in (*live, *([] if own is None else [own]))
            if (endpoint := endpoint_of(broker, self._listener_name)) is not None
        }
        active_id = self._controller.active_id
        entries = request["topics"]
        if version == 0 and not entries and not request.get("is_reduced"):
            entries = None  # an empty list means all topics in this version, unless authorization has emptied it
        return {
            "brokers": [
                {"node_id": broker.id, "host": endpoint.host, "port": endpoint.port, "rack": broker.rack}
                for broker, endpoint in sorted(reached.items(), key=lambda item: item[0].id)
            ],
            "controller_id": -1 if active_id is None else active_id,
            "topics": self._topics(
                entries,
                Listed(frozenset(broker.id for broker in live), frozenset(broker.id for broker in reached)),
                version,
            ),
        }

    def _topics(self, entries: list[dict[str, Any]] | None, listed: Listed, version: int) -> TopicEntries:
        """Returns the entries of topics; of all for None."""
        refs = self._controller.topics() if listed.live else []
        topics = (
            [Named(ref.name, ref.id) for ref in refs]
            if entries is None
            else named(entries, {ref.id: ref.name for ref in refs}, {ref.name: ref.id for ref in refs})
        )
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if listed.live else ErrorCode.LEADER_NOT_AVAILABLE
        rows_of = self._controller.rows if listed.live else _no_rows
        return TopicEntries(topics, rows_of, listed, version, unknown=unknown)


def _no_rows(topic: str) -> Rows | None:
    return None

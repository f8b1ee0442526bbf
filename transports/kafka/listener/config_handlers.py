"""Handlers of requests about kactl's own configs, which tools send because brokers list kactl as one of them.

Tools go through the whole list of brokers. A tool that removes throttles at the end of a reassignment removes them from
every broker, and fails if one rejects the request. kactl hosts no replica, so it accepts throttles and ignores them.
"""

from typing import Any, Final

from kactl.model.errors import ErrorCode

from .config_apis import ALTER_CONFIGS, DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS
from .field_types import Values
from .responses import Handler, result

# Resource types of the protocol.
_BROKER: Final = 4
_BROKER_LOGGER: Final = 8
# Set and removed by reassignments; they limit the work of replicas.
_THROTTLES: Final = frozenset(
    {
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)


class ConfigHandlers:
    """Handlers of DescribeConfigs, AlterConfigs and IncrementalAlterConfigs.

    Args:
        node_id: the id under which brokers list this kactl instance.
    """

    def __init__(self, node_id: int) -> None:
        self._name = str(node_id)

    def handlers(self) -> dict[int, Handler]:
        return {
            DESCRIBE_CONFIGS: self.on_describe,
            ALTER_CONFIGS: self.on_alter,
            INCREMENTAL_ALTER_CONFIGS: self.on_alter,
        }

    def concerns_only_kactl(self, request: dict[str, Any]) -> bool:
        """Returns whether a request concerns only kactl; any other request is relayed to a broker."""
        resources = request["resources"]
        return bool(resources) and all(
            resource["resource_type"] in (_BROKER, _BROKER_LOGGER) and resource["resource_name"] == self._name
            for resource in resources
        )

    async def on_describe(self, request: dict[str, Any], version: int) -> Values:
        """Return no configs: kactl has its own configuration file and admin API."""
        return {
            "results": [
                {**_id(resource), **result(ErrorCode.NONE, ""), "configs": []} for resource in request["resources"]
            ]
        }

    async def on_alter(self, request: dict[str, Any], version: int) -> Values:
        return {"responses": [{**_id(resource), **self._altered(resource)} for resource in request["resources"]]}

    def _altered(self, resource: dict[str, Any]) -> dict[str, Any]:
        others = sorted({config["name"] for config in resource["configs"]} - _THROTTLES)
        if not others:
            return result(ErrorCode.NONE, "")
        return result(
            ErrorCode.INVALID_CONFIG,
            f"{self._name} is a controller without replicas, and has no config {', '.join(others)}: "
            "name the brokers that the config is for",
        )


def _id(resource: dict[str, Any]) -> dict[str, Any]:
    return {"resource_type": resource["resource_type"], "resource_name": resource["resource_name"]}

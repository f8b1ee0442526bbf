"""The configs of a broker, asked of us because brokers list us as one of them.

Tools go through the whole list. A tool that lifts throttles at the end of a reassignment lifts them from everybody, and
fails if somebody refuses; we host no replica, so there is nothing to throttle, and no is not what it has to hear.
"""

from typing import Any, Final

from kactl.errors import ErrorCode

from .config_apis import ALTER_CONFIGS, DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS
from .responses import Answer, result
from .schema import Values

# Of resources, as the protocol numbers them.
_BROKER: Final = 4
_BROKER_LOGGER: Final = 8
# Set and lifted by reassignments. What they limit is done by replicas.
_THROTTLES: Final = frozenset(
    {
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)


class OwnConfigs:
    """See the module.

    Args:
        node_id: ours.
    """

    def __init__(self, node_id: int) -> None:
        self._name = str(node_id)

    def answers(self) -> dict[int, Answer]:
        return {
            DESCRIBE_CONFIGS: self.on_describe,
            ALTER_CONFIGS: self.on_alter,
            INCREMENTAL_ALTER_CONFIGS: self.on_alter,
        }

    def asked_for(self, asked: dict[str, Any]) -> bool:
        """Whether a request is about us and nobody else; any other is a broker's to answer or refuse."""
        resources = asked["resources"]
        return bool(resources) and all(
            each["resource_type"] in (_BROKER, _BROKER_LOGGER) and each["resource_name"] == self._name
            for each in resources
        )

    async def on_describe(self, asked: dict[str, Any], version: int) -> Values:
        """No configs: what ours are is said by another file, and read by another API."""
        return {"results": [{**_of(each), **result(ErrorCode.NONE, ""), "configs": []} for each in asked["resources"]]}

    async def on_alter(self, asked: dict[str, Any], version: int) -> Values:
        return {"responses": [{**_of(each), **self._altered(each)} for each in asked["resources"]]}

    def _altered(self, resource: dict[str, Any]) -> dict[str, Any]:
        others = sorted({config["name"] for config in resource["configs"]} - _THROTTLES)
        if not others:
            return result(ErrorCode.NONE, "")
        return result(
            ErrorCode.INVALID_CONFIG,
            f"{self._name} is a controller without replicas, and has no config {', '.join(others)}: "
            "name the brokers that are to have it",
        )


def _of(resource: dict[str, Any]) -> dict[str, Any]:
    return {"resource_type": resource["resource_type"], "resource_name": resource["resource_name"]}

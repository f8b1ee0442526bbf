"""Authorization of the requests that are relayed to brokers.

A broker takes a relayed request for one of kactl's own principal, which usually may do everything. Therefore each
resource that a request names is authorized for the client before anything is sent. If one is denied, nothing is sent,
and the response has an error for each part of the request.

Source: the authorization of Kafka's KafkaApis, AuthHelper.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from kactl.model.errors import ErrorCode
from kactl.security.access import CLUSTER, Operation, Resource, ResourceType, topic

from .config_apis import ALTER_CONFIGS, DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS
from .field_types import Values
from .relayed_apis import (
    ALTER_CLIENT_QUOTAS,
    CREATE_ACLS,
    DELETE_ACLS,
    DESCRIBE_ACLS,
    DESCRIBE_CLIENT_QUOTAS,
    FIND_COORDINATOR,
)
from .responses import result
from .verdict import Peer, Verdict, unchanged

Check = Callable[[Peer, dict[str, Any], int], Verdict]

_DENIED_CLUSTER: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_DENIED_TOPIC: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_TOGETHER: Final = "nothing of the request is carried out, because a part of it is not allowed"
# Resource types of configs. https://kafka.apache.org/protocol: ConfigResource.Type.
_TOPIC: Final = 2
_OF_CLUSTER: Final = (4, 8)  # brokers and their loggers
# Types of coordinators, with the resources that they coordinate.
_COORDINATED: Final = {
    0: (ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    1: (ResourceType.TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
}


def _on_cluster(operation: Operation, denied: Callable[[dict[str, Any]], Values]) -> Check:
    def check(peer: Peer, request: dict[str, Any], version: int) -> Verdict:
        if peer.may(operation):
            return Verdict(request, unchanged)
        return Verdict(None, lambda _: denied(request))

    return check


def _as_a_whole(request: dict[str, Any]) -> Values:
    return result(_DENIED_CLUSTER, "")


def _of_each(of_request: str, of_response: str, *kept: str) -> Callable[[dict[str, Any]], Values]:
    """Returns what makes a response with an error for each entry of a request, with some of the entry's fields."""

    def denied(request: dict[str, Any]) -> Values:
        return {
            of_response: [
                {**result(_DENIED_CLUSTER, ""), **{name: entry[name] for name in kept}} for entry in request[of_request]
            ]
        }

    return denied


def _on_configs(operation: Operation, of_response: str) -> Check:
    """Requests about the configs of topics and brokers. Configs of other types are not relayed."""

    def check(peer: Peer, request: dict[str, Any], version: int) -> Verdict:
        resources = request["resources"]
        allowed = [_may_on_config(peer, operation, entry) for entry in resources]
        if all(allowed):
            return Verdict(request, unchanged)
        denied = [
            {
                "resource_type": entry["resource_type"],
                "resource_name": entry["resource_name"],
                **result(
                    _DENIED_TOPIC if entry["resource_type"] == _TOPIC else _DENIED_CLUSTER,
                    _TOGETHER if is_allowed else "",
                ),
                "configs": [],
            }
            for entry, is_allowed in zip(resources, allowed, strict=True)
        ]
        return Verdict(None, lambda _: {of_response: denied})

    return check


def _may_on_config(peer: Peer, operation: Operation, entry: Values) -> bool:
    if entry["resource_type"] == _TOPIC:
        return peer.may_on(operation, topic(entry["resource_name"]))
    return entry["resource_type"] in _OF_CLUSTER and peer.may_on(operation, CLUSTER)


def _find_coordinator(peer: Peer, request: dict[str, Any], version: int) -> Verdict:
    if request["key_type"] not in _COORDINATED:
        return Verdict(None, lambda _: result(ErrorCode.INVALID_REQUEST, "there is no such type of coordinators"))
    kind, denied = _COORDINATED[request["key_type"]]
    if peer.may_on(Operation.DESCRIBE, Resource(kind, request["key"])):
        return Verdict(request, unchanged)
    return Verdict(None, lambda _: result(denied, ""))


RELAYED_CHECKS: Final[Mapping[int, Check]] = {
    FIND_COORDINATOR: _find_coordinator,
    DESCRIBE_ACLS: _on_cluster(Operation.DESCRIBE, _as_a_whole),
    CREATE_ACLS: _on_cluster(Operation.ALTER, _of_each("creations", "results")),
    DELETE_ACLS: _on_cluster(Operation.ALTER, _of_each("filters", "filter_results")),
    DESCRIBE_CONFIGS: _on_configs(Operation.DESCRIBE_CONFIGS, "results"),
    ALTER_CONFIGS: _on_configs(Operation.ALTER_CONFIGS, "responses"),
    INCREMENTAL_ALTER_CONFIGS: _on_configs(Operation.ALTER_CONFIGS, "responses"),
    DESCRIBE_CLIENT_QUOTAS: _on_cluster(Operation.DESCRIBE_CONFIGS, _as_a_whole),
    ALTER_CLIENT_QUOTAS: _on_cluster(Operation.ALTER_CONFIGS, _of_each("entries", "entries", "entity")),
}

"""Configuration of one broker, read over Kafka's protocol.

Source: DescribeConfigs, KIP-133.
"""

import struct
from collections.abc import Sequence
from typing import Final

from kactl.model.errors import BrokerUnreachable, ErrorCode, MalformedMessage

from .client import KafkaConnection
from .listener.config_apis import DESCRIBE_CONFIGS_API

# Brokers of every protocol level answer it, and its header is the one of KafkaConnection.ask.
_VERSION: Final = 1
_BROKER: Final = 4
_CORRELATION_ID: Final = struct.Struct(">i")


async def read_broker_config(connection: KafkaConnection, names: Sequence[str]) -> dict[str, str | None]:
    """Returns the values of properties that the broker has; None for a value that is not shown.

    Raises:
        BrokerUnreachable: the broker did not answer, or rejects the request.
    """
    broker = connection.broker.id
    request = {
        "resources": [
            {"resource_type": _BROKER, "resource_name": str(broker), "configuration_keys": list(names)},
        ],
        "include_synonyms": False,
    }
    body = DESCRIBE_CONFIGS_API.request.write(request, _VERSION)
    data = await connection.ask(DESCRIBE_CONFIGS_API.key, _VERSION, body)
    try:
        response = DESCRIBE_CONFIGS_API.response.read(data, _VERSION, begin=_CORRELATION_ID.size)
    except MalformedMessage as error:
        raise BrokerUnreachable(broker, f"malformed response: {error}") from None
    (found,) = response["results"] or [{"error_code": ErrorCode.UNKNOWN_SERVER_ERROR, "configs": ()}]
    if found["error_code"]:
        name = ErrorCode(found["error_code"]).name if found["error_code"] in set(ErrorCode) else found["error_code"]
        reason = f"it rejects DescribeConfigs ({name}): give kactl's principal DescribeConfigs on the cluster"
        raise BrokerUnreachable(broker, reason)
    return {entry["name"]: entry["value"] for entry in found["configs"]}

"""Schemas of the requests about configs. They are relayed to a broker, unless they concern kactl itself.

Source: the protocol's message definitions, as of Kafka 3.9.
"""

from typing import Final

from .api import Api
from .field_types import BOOL, INT8, INT16, INT32, STRING, Array, Field
from .schema import Message

DESCRIBE_CONFIGS: Final = 32
ALTER_CONFIGS: Final = 33
INCREMENTAL_ALTER_CONFIGS: Final = 44

_THROTTLE: Final = Field("throttle_time_ms", INT32)
_ERROR: Final = (Field("error_code", INT16), Field("error_message", STRING, nullable=0))
_RESOURCE: Final = (Field("resource_type", INT8), Field("resource_name", STRING))
_VALUE: Final = Field("value", STRING, nullable=0)
_ALTERED: Final = Field("responses", Array((*_ERROR, *_RESOURCE)))

DESCRIBE_CONFIGS_API: Final = Api(
    DESCRIBE_CONFIGS,
    "DescribeConfigs",
    4,
    Message(
        Field("resources", Array((*_RESOURCE, Field("configuration_keys", Array(STRING), nullable=0)))),
        Field("include_synonyms", BOOL, since=1),
        Field("include_documentation", BOOL, since=3),
        flexible=4,
    ),
    Message(
        _THROTTLE,
        Field(
            "results",
            Array(
                (
                    *_ERROR,
                    *_RESOURCE,
                    Field(
                        "configs",
                        Array(
                            (
                                Field("name", STRING),
                                _VALUE,
                                Field("read_only", BOOL),
                                Field("is_default", BOOL, until=0),
                                Field("config_source", INT8, since=1, default=-1),
                                Field("is_sensitive", BOOL),
                                Field(
                                    "synonyms",
                                    Array((Field("name", STRING), _VALUE, Field("source", INT8))),
                                    since=1,
                                ),
                                Field("config_type", INT8, since=3),
                                Field("documentation", STRING, since=3, nullable=3),
                            )
                        ),
                    ),
                )
            ),
        ),
        flexible=4,
    ),
)

ALTER_CONFIGS_API: Final = Api(
    ALTER_CONFIGS,
    "AlterConfigs",
    2,
    Message(
        Field("resources", Array((*_RESOURCE, Field("configs", Array((Field("name", STRING), _VALUE)))))),
        Field("validate_only", BOOL),
        flexible=2,
    ),
    Message(_THROTTLE, _ALTERED, flexible=2),
)

INCREMENTAL_ALTER_CONFIGS_API: Final = Api(
    INCREMENTAL_ALTER_CONFIGS,
    "IncrementalAlterConfigs",
    1,
    Message(
        Field(
            "resources",
            Array(
                (
                    *_RESOURCE,
                    Field("configs", Array((Field("name", STRING), Field("config_operation", INT8), _VALUE))),
                )
            ),
        ),
        Field("validate_only", BOOL),
        flexible=1,
    ),
    Message(_THROTTLE, _ALTERED, flexible=1),
)

CONFIG_APIS: Final[dict[int, Api]] = {
    api.key: api for api in (DESCRIBE_CONFIGS_API, ALTER_CONFIGS_API, INCREMENTAL_ALTER_CONFIGS_API)
}

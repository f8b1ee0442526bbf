"""Schemas of the requests that a listener with logins relays after it has authorized them.

Only these are relayed there: each of them names what it concerns. Their versions are those that brokers of every
supported version take. Responses are relayed unread; the schemas here write those to requests that are denied.

Source: the protocol's message definitions, as of Kafka 3.9.
"""

from typing import Final

from .api import ERROR, THROTTLE, Api
from .config_apis import ALTER_CONFIGS_API, DESCRIBE_CONFIGS_API, INCREMENTAL_ALTER_CONFIGS_API
from .field_types import BOOL, FLOAT64, INT8, INT16, INT32, STRING, Array, Field
from .schema import Message

FIND_COORDINATOR: Final = 10
DESCRIBE_ACLS: Final = 29
CREATE_ACLS: Final = 30
DELETE_ACLS: Final = 31
DESCRIBE_CLIENT_QUOTAS: Final = 48
ALTER_CLIENT_QUOTAS: Final = 49

_ACL_FILTER: Final = (
    Field("resource_type_filter", INT8),
    Field("resource_name_filter", STRING, nullable=0),
    Field("pattern_type_filter", INT8, since=1, default=3),
    Field("principal_filter", STRING, nullable=0),
    Field("host_filter", STRING, nullable=0),
    Field("operation", INT8),
    Field("permission_type", INT8),
)
_ACL: Final = (
    Field("principal", STRING),
    Field("host", STRING),
    Field("operation", INT8),
    Field("permission_type", INT8),
)
_RESOURCE: Final = (Field("resource_type", INT8), Field("resource_name", STRING))
_PATTERN: Final = Field("pattern_type", INT8, since=1, default=3)
_ENTITY: Final = Field("entity", Array((Field("entity_type", STRING), Field("entity_name", STRING, nullable=0))))

FIND_COORDINATOR_API: Final = Api(
    FIND_COORDINATOR,
    "FindCoordinator",
    3,
    Message(Field("key", STRING), Field("key_type", INT8, since=1), flexible=3),
    Message(
        Field("throttle_time_ms", INT32, since=1),
        Field("error_code", INT16),
        Field("error_message", STRING, since=1, nullable=1),
        Field("node_id", INT32, default=-1),
        Field("host", STRING),
        Field("port", INT32, default=-1),
        flexible=3,
    ),
)
DESCRIBE_ACLS_API: Final = Api(
    DESCRIBE_ACLS,
    "DescribeAcls",
    2,
    Message(*_ACL_FILTER, flexible=2),
    Message(
        THROTTLE,
        *ERROR,
        Field("resources", Array((*_RESOURCE, _PATTERN, Field("acls", Array(_ACL))))),
        flexible=2,
    ),
)
CREATE_ACLS_API: Final = Api(
    CREATE_ACLS,
    "CreateAcls",
    2,
    Message(
        Field("creations", Array((*_RESOURCE, Field("resource_pattern_type", INT8, since=1, default=3), *_ACL))),
        flexible=2,
    ),
    Message(THROTTLE, Field("results", Array(ERROR)), flexible=2),
)
DELETE_ACLS_API: Final = Api(
    DELETE_ACLS,
    "DeleteAcls",
    2,
    Message(Field("filters", Array(_ACL_FILTER)), flexible=2),
    Message(
        THROTTLE,
        Field(
            "filter_results",
            Array((*ERROR, Field("matching_acls", Array((*ERROR, *_RESOURCE, _PATTERN, *_ACL))))),
        ),
        flexible=2,
    ),
)
DESCRIBE_CLIENT_QUOTAS_API: Final = Api(
    DESCRIBE_CLIENT_QUOTAS,
    "DescribeClientQuotas",
    0,
    Message(
        Field(
            "components",
            Array((Field("entity_type", STRING), Field("match_type", INT8), Field("match", STRING, nullable=0))),
        ),
        Field("strict", BOOL),
        flexible=1,
    ),
    Message(
        THROTTLE,
        *ERROR,
        Field(
            "entries",
            Array((_ENTITY, Field("values", Array((Field("key", STRING), Field("value", FLOAT64)))))),
            nullable=0,
        ),
        flexible=1,
    ),
)
ALTER_CLIENT_QUOTAS_API: Final = Api(
    ALTER_CLIENT_QUOTAS,
    "AlterClientQuotas",
    0,
    Message(
        Field(
            "entries",
            Array(
                (
                    _ENTITY,
                    Field("ops", Array((Field("key", STRING), Field("value", FLOAT64), Field("remove", BOOL)))),
                )
            ),
        ),
        Field("validate_only", BOOL),
        flexible=1,
    ),
    Message(THROTTLE, Field("entries", Array((*ERROR, _ENTITY))), flexible=1),
)
RELAYED_APIS: Final[dict[int, Api]] = {
    api.key: api
    for api in (
        FIND_COORDINATOR_API,
        DESCRIBE_ACLS_API,
        CREATE_ACLS_API,
        DELETE_ACLS_API,
        DESCRIBE_CONFIGS_API._replace(version_max=3),
        ALTER_CONFIGS_API._replace(version_max=1),
        INCREMENTAL_ALTER_CONFIGS_API,
        DESCRIBE_CLIENT_QUOTAS_API,
        ALTER_CLIENT_QUOTAS_API,
    )
}

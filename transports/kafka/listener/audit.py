"""Targets and outcomes of the requests that change something, for the audit trail.

Changes have their outcome, by the errors in the response. An action that is not complete in time continues, and one
that ends with an unexpected error, such as the loss of the store, may have happened: neither has failed. A broker's
response to a relayed change is not read, so its outcome is unknown here; the broker's own log has it, under kactl's
name.
"""

from collections.abc import Iterator
from typing import Any, Final

from kactl.errors import ErrorCode
from kactl.telemetry.attempts import Outcome

from .api_keys import (
    ALTER_PARTITION_REASSIGNMENTS,
    ALTER_USER_SCRAM_CREDENTIALS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    ELECT_LEADERS,
    UPDATE_FEATURES,
)
from .config_apis import ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS
from .field_types import Values
from .relayed_apis import ALTER_CLIENT_QUOTAS, CREATE_ACLS, DELETE_ACLS

# Requests of brokers are left out: they are the cluster's work, and not a decision of a person.
CHANGES: Final = frozenset(
    {
        CREATE_TOPICS,
        DELETE_TOPICS,
        CREATE_PARTITIONS,
        ELECT_LEADERS,
        ALTER_PARTITION_REASSIGNMENTS,
        UPDATE_FEATURES,
        ALTER_USER_SCRAM_CREDENTIALS,
        ALTER_CONFIGS,
        INCREMENTAL_ALTER_CONFIGS,
        CREATE_ACLS,
        DELETE_ACLS,
        ALTER_CLIENT_QUOTAS,
    }
)
RELAYED: Final = "relayed to a broker, whose response is not read"
# Names of a request that a record contains.
_NAMED_MAX: Final = 5
_SETTINGS: Final = ("configs", "ops")
_NAMES: Final = ("name", "topic", "resource_name", "entity_name", "resource_name_filter", "topic_names")


def target_of(request: Values) -> str:
    """Returns what a request is about, by the names in it."""
    names = list(dict.fromkeys(_names(request)))
    more = len(names) - _NAMED_MAX
    return ", ".join(names[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def _names(value: Any, field: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if name not in _SETTINGS:
                yield from _names(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from _names(inner, field)
    elif isinstance(value, str) and field in _NAMES:
        yield value


def outcome_of(response: Values) -> tuple[Outcome, str]:
    """Returns the outcome of a change, and the names of its errors."""
    errors = {ErrorCode(code) for code in _codes(response) if code}
    detail = ", ".join(sorted(error.name for error in errors))
    if not errors:
        return "done", ""
    if errors == {ErrorCode.REQUEST_TIMED_OUT}:
        return "unfinished", detail
    if ErrorCode.REQUEST_TIMED_OUT in errors or any(_leaf_codes(response)):
        return "partly", detail
    return ("unknown" if ErrorCode.UNKNOWN_SERVER_ERROR in errors else "failed"), detail


def _codes(value: Any) -> Iterator[int]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == "error_code":
                yield int(inner)
            else:
                yield from _codes(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _codes(inner)


def _leaf_codes(response: Values) -> Iterator[bool]:
    """Yields whether each part of a response has succeeded; the error of the whole is none of a part."""
    return (not code for name, inner in response.items() if name != "error_code" for code in _codes(inner))

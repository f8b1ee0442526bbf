"""Targets and outcomes of the requests that change something, for the audit trail.

Changes have their outcome, by the errors in the response. An action that is not complete in time continues, and one
that ends with an unexpected error, such as the loss of the store, may have happened: neither has failed. A broker's
response to a relayed change is not read, so its outcome is unknown here; the broker's own log has it, under kactl's
name.
"""

import itertools
from typing import Any, Final

from kactl.model.errors import ErrorCode
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
_ARRAYS: Final = (list, tuple)
_NAMES: Final = ("name", "topic", "resource_name", "entity_name", "resource_name_filter", "topic_names")


def target_of(request: Values) -> str:
    """Returns what a request is about, by the names in it."""
    names: dict[str, None] = {}
    _collect_names(request, names)
    more = len(names) - _NAMED_MAX
    return ", ".join(itertools.islice(names, _NAMED_MAX)) + (f" and {more} more" if more > 0 else "")


# Responses and requests have up to some ten thousand rows, and nothing else happens while they are looked through: both
# walks go through a message once, and through its arrays of numbers not at all.


def _collect_names(values: Values, names: dict[str, None]) -> None:
    for field, value in values.items():
        if isinstance(value, str):
            if field in _NAMES:
                names[value] = None
        elif isinstance(value, _ARRAYS) and value and field not in _SETTINGS:
            if isinstance(value[0], dict):
                for inner in value:
                    _collect_names(inner, names)
            elif field in _NAMES:
                names.update(dict.fromkeys(value))


def outcome_of(response: Values) -> tuple[Outcome, str]:
    """Returns the outcome of a change, and the names of its errors."""
    codes: set[int] = set()
    for value in response.values():
        _collect_codes(value, codes)
    is_partly_done = ErrorCode.NONE in codes
    codes.add(response.get("error_code", ErrorCode.NONE))
    errors = {ErrorCode(code) for code in codes if code}
    detail = ", ".join(sorted(error.name for error in errors))
    if not errors:
        return "done", ""
    if errors == {ErrorCode.REQUEST_TIMED_OUT}:
        return "unfinished", detail
    if ErrorCode.REQUEST_TIMED_OUT in errors or is_partly_done:
        return "partly", detail
    return ("unknown" if ErrorCode.UNKNOWN_SERVER_ERROR in errors else "failed"), detail


def _collect_codes(rows: Any, codes: set[int]) -> None:
    """Add the error codes of the rows of an array, and of the arrays in them."""
    if not isinstance(rows, _ARRAYS) or not rows or not isinstance(rows[0], dict):
        return
    for row in rows:
        for field, value in row.items():
            if field == "error_code":
                codes.add(value)
            elif isinstance(value, _ARRAYS):
                _collect_codes(value, codes)

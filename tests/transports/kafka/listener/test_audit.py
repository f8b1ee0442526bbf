"""Targets and outcomes of changes, against a simpler formulation."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kactl.model.errors import ErrorCode
from kactl.transports.kafka.listener.audit import outcome_of, target_of

CODES = st.sampled_from(
    [
        ErrorCode.NONE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.INVALID_REQUEST,
        int(ErrorCode.NOT_CONTROLLER),
    ]
)
PARTITIONS = st.lists(st.fixed_dictionaries({"partition_index": st.just(3), "error_code": CODES}), max_size=3)
TOPICS = st.lists(
    st.one_of(
        st.fixed_dictionaries({"name": st.text(max_size=2), "error_code": CODES, "isr": st.just((1, 2))}),
        st.fixed_dictionaries({"topic": st.text(max_size=2), "partitions": PARTITIONS}),
    ),
    max_size=4,
)
RESPONSES = st.one_of(
    st.fixed_dictionaries({"responses": TOPICS}),
    st.fixed_dictionaries({"throttle_time_ms": st.just(7), "error_code": CODES, "results": TOPICS.map(tuple)}),
)


def parts(value: Any) -> Iterator[int]:
    """Yields the error code of each part of a response."""
    if isinstance(value, list | tuple):
        for inner in value:
            yield from parts(inner)
    if isinstance(value, dict):
        yield from (code for name, code in value.items() if name == "error_code")
        for inner in value.values():
            yield from parts(inner)


@given(RESPONSES)
def test_outcome_is_that_of_all_parts(response: dict[str, Any]) -> None:
    inner = [code for field in response.values() for code in parts(field)]
    errors = {code for code in (*inner, response.get("error_code", 0)) if code}
    timed_out = ErrorCode.REQUEST_TIMED_OUT in errors
    if not errors:
        expected = "done"
    elif errors == {ErrorCode.REQUEST_TIMED_OUT}:
        expected = "unfinished"
    elif timed_out or 0 in inner:
        expected = "partly"
    else:
        expected = "unknown" if ErrorCode.UNKNOWN_SERVER_ERROR in errors else "failed"

    assert outcome_of(response) == (expected, ", ".join(sorted(ErrorCode(error).name for error in errors)))


@pytest.mark.parametrize(
    ("request_", "target"),
    [
        ({"topic_names": ["b", "a", "b"], "topics": [], "timeout_ms": 5}, "b, a"),
        ({"topics": [{"name": name, "topic_id": b""} for name in "abcdefg"]}, "a, b, c, d, e and 2 more"),
        ({"topics": [{"name": None, "topic_id": b"x"}]}, ""),
        ({"topics": [{"name": "a", "partitions": [{"partition_index": 0, "replicas": [1]}]}]}, "a"),
        ({"topics": [{"name": "a", "configs": [{"name": "retention.ms", "value": "1"}]}]}, "a"),
        ({"entries": [{"entity": [{"entity_type": "user", "entity_name": "alice"}], "ops": [{"key": "k"}]}]}, "alice"),
        ({"topic_partitions": None, "timeout_ms": 1}, ""),
    ],
)
def test_target_has_the_names_of_a_request(request_: dict[str, Any], target: str) -> None:
    assert target_of(request_) == target

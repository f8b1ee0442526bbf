"""Users and access control lists as brokers store them."""

import base64
import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kactl.security.access import Acl, Operation
from kactl.security.sasl import ScramVerifier
from kactl.stores.formats import access
from kactl.stores.formats.json_text import Malformed

DENY_ALL = [Acl("User:*", "*", Operation.ALL, is_denial=True)]


def _user(**fields: Any) -> bytes:
    parts = {"salt": b"salt", "stored_key": b"stored", "server_key": b"server"} | fields
    texts = [f"{name}={base64.b64encode(value).decode()}" for name, value in parts.items() if isinstance(value, bytes)]
    text = ",".join([*texts, f"iterations={fields.get('iterations', 4096)}"])
    return msgspec.json.encode({"version": 1, "config": {"SCRAM-SHA-512": text, "producer_byte_rate": "1024"}})


def test_verifier_of_a_user() -> None:
    assert access.decode_user(_user(), "SCRAM-SHA-512") == ScramVerifier(b"salt", 4096, b"stored", b"server")
    assert access.decode_user(_user(), "SCRAM-SHA-256") is None


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"[]",
        b'{"config": {"SCRAM-SHA-512": 1}}',
        b'{"config": {"SCRAM-SHA-512": "salt=*"}}',
        _user(salt=b""),
        _user(iterations=4095),
        _user(iterations=65_537),
    ],
)
def test_malformed_user_is_an_error_that_quotes_no_credentials(data: bytes | None) -> None:
    with pytest.raises(Malformed) as raised:
        access.decode_user(data, "SCRAM-SHA-512")
    assert base64.b64encode(b"stored").decode() not in str(raised.value)


# Java's URLEncoder, with the replacements of Kafka's Sanitizer, by the names of its documentation.
@pytest.mark.parametrize(
    ("name", "node"),
    [
        ("alice", "alice"),
        ("CN=a, O=b", "CN%3Da%2C%20O%3Db"),
        ("a*b", "a%2Ab"),
        ("ü~._-", "%C3%BC%7E._-"),
        ("a/b", "a%2Fb"),
    ],
)
def test_name_of_a_users_node(name: str, node: str) -> None:
    assert access.user_name(name) == node


def _acls(*entries: Any) -> bytes:
    return msgspec.json.encode({"version": 1, "acls": list(entries)})


ENTRY = {"principal": "User:alice", "permissionType": "Allow", "host": "*", "operation": "Read"}


def test_entries_of_a_list() -> None:
    denial = ENTRY | {"permissionType": "Deny", "operation": "ClusterAction", "host": "10.0.0.1"}
    assert access.decode_acls("/kafka-acl/Topic/t", _acls(ENTRY, denial)) == [
        Acl("User:alice", "*", Operation.READ),
        Acl("User:alice", "10.0.0.1", Operation.CLUSTER_ACTION, is_denial=True),
    ]


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"{}",
        _acls({"principal": "User:alice"}),
        _acls(ENTRY, ENTRY | {"permissionType": "Maybe"}),
        _acls(ENTRY | {"operation": "Rewrite"}),
        _acls(*[ENTRY] * (access.ACLS_MAX + 1)),
    ],
)
def test_list_that_cannot_be_read_denies_everything(data: bytes | None, caplog: pytest.LogCaptureFixture) -> None:
    assert access.decode_acls("/kafka-acl/Topic/t", data) == DENY_ALL
    assert "/kafka-acl/Topic/t" in caplog.text


@given(data=st.binary(max_size=100))
def test_any_content_is_read_or_denies(data: bytes) -> None:
    assert isinstance(access.decode_acls("/x", data), list)
    with contextlib.suppress(Malformed):
        access.decode_user(data, "SCRAM-SHA-512")

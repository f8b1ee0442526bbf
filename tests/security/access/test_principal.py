"""The identity of a peer, of any interface."""

import pytest

from kactl.security.access import ANONYMOUS, Principal, kafka_subject, kafka_user, stranger


@pytest.mark.parametrize(
    ("principal", "label", "caller"),
    [
        (Principal("ada"), "ada", "ada"),
        (Principal("grafana", "token", peer="10.0.0.1"), "token:grafana", "token:grafana"),
        (Principal("uid=0", "unix", peer="unix"), "unix:uid=0", "unix:uid=0"),
        (Principal("CN=ada", "certificate"), "certificate:CN=ada", "certificate:CN=ada"),
        (Principal("3", "participant"), "participant:3", "participant:3"),
        (Principal("3", "controller"), "controller:3", "controller:3"),
        (kafka_user("alice", peer="10.0.0.1"), "User:alice", "User:alice"),
        (kafka_subject("CN=alice", peer="10.0.0.1"), "User:CN=alice", "User:CN=alice"),
        (stranger("10.0.0.1", ANONYMOUS), "User:ANONYMOUS", "10.0.0.1"),
        (stranger("10.0.0.1"), "", "10.0.0.1"),
        (stranger("", ANONYMOUS), "User:ANONYMOUS", "User:ANONYMOUS"),
    ],
)
def test_names_of_kinds_differ(principal: Principal, label: str, caller: str) -> None:
    assert (principal.label, principal.caller) == (label, caller)


def test_only_strangers_have_no_identity() -> None:
    assert kafka_user("alice", peer="10.0.0.1").is_authenticated
    assert not stranger("10.0.0.1", ANONYMOUS).is_authenticated


@pytest.mark.parametrize("field", Principal.__struct_fields__)
def test_identity_cannot_be_changed(field: str) -> None:
    with pytest.raises(AttributeError, match="immutable"):
        setattr(Principal("ada"), field, "eve")

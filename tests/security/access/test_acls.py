"""Decisions of ACLs, against a second formulation of Kafka's rules."""

from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kactl.security.access import (
    CLUSTER,
    Acl,
    AclAuthorizer,
    Acls,
    BrokerPrincipals,
    Operation,
    Principal,
    Resource,
    topic,
)
from kactl.security.access.resource import ResourceType

ALICE = Principal("User:alice", "sasl", peer="10.0.0.1")
BOB = Principal("User:bob", "sasl", peer="10.0.0.2")
ORDERS = topic("orders")


def _acls(*acls: Acl, of: Resource = ORDERS) -> Acls:
    return Acls({of: acls})


def test_nothing_is_allowed_without_an_entry() -> None:
    assert not Acls().allow(ALICE, Operation.READ, ORDERS)
    assert Acls().allow(ALICE, Operation.READ, ORDERS, if_no_acl=True)


def test_entry_of_another_principal_ends_the_default() -> None:
    acls = _acls(Acl("User:alice", "*", Operation.READ))
    assert acls.allow(ALICE, Operation.READ, ORDERS)
    assert not acls.allow(BOB, Operation.READ, ORDERS, if_no_acl=True)


def test_denial_takes_precedence() -> None:
    acls = _acls(Acl("User:*", "*", Operation.ALL), Acl("User:bob", "*", Operation.READ, is_denial=True))
    assert acls.allow(ALICE, Operation.READ, ORDERS)
    assert not acls.allow(BOB, Operation.READ, ORDERS)
    assert acls.allow(BOB, Operation.WRITE, ORDERS)


def test_denial_of_reading_is_no_denial_of_describing() -> None:
    acls = _acls(Acl("User:*", "*", Operation.WRITE), Acl("User:bob", "*", Operation.READ, is_denial=True))
    assert acls.allow(BOB, Operation.DESCRIBE, ORDERS)


def test_denial_alone_allows_nothing() -> None:
    acls = _acls(Acl("User:bob", "*", Operation.READ, is_denial=True))
    assert not acls.allow(BOB, Operation.WRITE, ORDERS)
    assert not acls.allow(ALICE, Operation.READ, ORDERS, if_no_acl=True)


@pytest.mark.parametrize("operation", [Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER])
def test_describing_is_implied(operation: Operation) -> None:
    acls = _acls(Acl("User:alice", "*", operation))
    assert acls.allow(ALICE, Operation.DESCRIBE, ORDERS)
    assert not acls.allow(ALICE, Operation.DESCRIBE_CONFIGS, ORDERS)


def test_altering_configs_implies_describing_them() -> None:
    acls = _acls(Acl("User:alice", "*", Operation.ALTER_CONFIGS))
    assert acls.allow(ALICE, Operation.DESCRIBE_CONFIGS, ORDERS)
    assert not acls.allow(ALICE, Operation.DESCRIBE, ORDERS)
    assert not acls.allow(ALICE, Operation.ALTER, ORDERS)


def test_host_has_to_match() -> None:
    acls = _acls(Acl("User:alice", "10.0.0.1", Operation.READ))
    assert acls.allow(ALICE, Operation.READ, ORDERS)
    assert not acls.allow(msgspec.structs.replace(ALICE, peer="10.0.0.2"), Operation.READ, ORDERS)


def test_prefix_and_wildcard_apply() -> None:
    acls = Acls(
        {topic("*"): [Acl("User:bob", "*", Operation.READ)]}, {topic("ord"): [Acl("User:alice", "*", Operation.READ)]}
    )
    assert acls.allow(ALICE, Operation.READ, ORDERS)
    assert not acls.allow(ALICE, Operation.READ, topic("or"))
    assert acls.allow(BOB, Operation.READ, topic("anything"))
    assert not acls.allow(BOB, Operation.READ, CLUSTER)


@pytest.mark.parametrize("user", ["alice", "*"])
def test_prefixes_of_all_lengths_apply(user: str) -> None:
    operations = {
        "o": Operation.READ, "or": Operation.WRITE, "on": Operation.CREATE, "orders": Operation.DELETE,
        "orders-": Operation.ALTER,
    }  # fmt: skip
    acls = Acls(prefixed={topic(each): [Acl(f"User:{user}", "*", operations[each])] for each in operations})
    allowed = {operation for operation in operations.values() if acls.allow(ALICE, operation, ORDERS)}
    assert allowed == {Operation.READ, Operation.WRITE, Operation.DELETE}
    assert not acls.allow(ALICE, Operation.READ, Resource(ResourceType.GROUP, "orders"))


class _Read(Acl):
    """An entry that counts how often it is looked at."""

    times = 0

    @property
    def principal(self) -> str:
        _Read.times += 1
        return self[0]


def test_entries_of_other_principals_are_not_looked_through() -> None:
    """A request may name thousands of topics, and a cluster may have thousands of entries for all of them."""
    others = [_Read(f"User:user-{number}", "*", Operation.READ) for number in range(3)]
    acls = Acls({topic("*"): others}, {topic("ord"): [Acl("User:alice", "*", Operation.READ), *others]})
    indexed = _Read.times
    assert acls.allow(ALICE, Operation.READ, ORDERS)
    assert not acls.allow(BOB, Operation.READ, ORDERS)
    assert _Read.times == indexed


OPERATIONS = st.sampled_from(
    [Operation.ALL, Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALTER_CONFIGS]
)
NAMES = st.sampled_from(["*", "a", "ab", "abc", "b"])
ENTRIES = st.builds(
    Acl,
    st.sampled_from(["User:alice", "User:bob", "User:*"]),
    st.sampled_from(["*", "10.0.0.1"]),
    OPERATIONS,
    is_denial=st.booleans(),
)
LISTS = st.dictionaries(NAMES.map(topic), st.lists(ENTRIES, max_size=3), max_size=4)


@given(
    literal=LISTS,
    prefixed=LISTS,
    principal=st.sampled_from([ALICE, BOB]),
    operation=st.sampled_from([Operation.READ, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS]),
    name=st.sampled_from(["a", "ab", "abc", "c"]),
    if_no_acl=st.booleans(),
)
def test_decision_by_the_rules(
    literal: Mapping[Resource, list[Acl]],
    prefixed: Mapping[Resource, list[Acl]],
    principal: Principal,
    operation: Operation,
    name: str,
    *,
    if_no_acl: bool,
) -> None:
    applying = [acl for resource, acls in literal.items() for acl in acls if resource.name in (name, "*")] + [
        acl for resource, acls in prefixed.items() for acl in acls if name.startswith(resource.name)
    ]
    mine = [
        acl for acl in applying if acl.principal in (principal.name, "User:*") and acl.host in (principal.peer, "*")
    ]
    implied = {
        Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
        Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
    }.get(operation, set())
    denied = any(acl.is_denial and acl.operation in (operation, Operation.ALL) for acl in mine)
    allowed = any(not acl.is_denial and acl.operation in {operation, Operation.ALL, *implied} for acl in mine)
    expected = if_no_acl if not applying else allowed and not denied
    assert Acls(literal, prefixed).allow(principal, operation, topic(name), if_no_acl=if_no_acl) == expected


def test_super_user_needs_no_acl() -> None:
    authorizer = AclAuthorizer(
        super_users=["User:alice"], acls=_acls(Acl("User:*", "*", Operation.ALL, is_denial=True))
    )
    assert authorizer.allows(ALICE, Operation.DELETE, ORDERS)
    assert not authorizer.allows(BOB, Operation.DELETE, ORDERS)


def test_only_super_users_and_brokers_pass_while_the_acls_are_unknown() -> None:
    authorizer = AclAuthorizer(
        super_users=["User:alice"], brokers=BrokerPrincipals({1: "User:broker"}), if_no_acl=True, acls=None
    )
    assert authorizer.allows(ALICE, Operation.READ, ORDERS)
    assert not authorizer.allows(BOB, Operation.READ, ORDERS)
    assert authorizer.allows(Principal("User:broker", "sasl", peer="x"), Operation.CLUSTER_ACTION, CLUSTER)
    assert not authorizer.allows(Principal("User:broker", "sasl", peer="x"), Operation.CREATE, CLUSTER)


def test_broker_acts_on_the_cluster_only() -> None:
    broker = Principal("User:broker", "sasl", peer="x")
    authorizer = AclAuthorizer(brokers=BrokerPrincipals({1: "User:broker"}), acls=Acls())
    assert authorizer.allows(broker, Operation.CLUSTER_ACTION, CLUSTER)
    assert not authorizer.allows(broker, Operation.CLUSTER_ACTION, ORDERS)
    assert not authorizer.allows(BOB, Operation.CLUSTER_ACTION, CLUSTER)


def test_default_applies_to_resources_without_a_list() -> None:
    authorizer = AclAuthorizer(if_no_acl=True, acls=_acls(Acl("User:alice", "*", Operation.READ)))
    assert authorizer.allows(BOB, Operation.READ, topic("other"))
    assert not authorizer.allows(BOB, Operation.READ, ORDERS)
    assert not AclAuthorizer(acls=Acls()).allows(BOB, Operation.READ, ORDERS)


def test_broker_speaks_for_itself() -> None:
    authorizer = AclAuthorizer(brokers=BrokerPrincipals({9: "User:nine"}, "User:broker-{id}"), acls=Acls())
    one = Principal("User:broker-1", "sasl", peer="x")
    assert authorizer.may_speak_for(one, 1)
    assert not authorizer.may_speak_for(one, 2)
    assert authorizer.may_speak_for(Principal("User:nine", "sasl", peer="x"), 9)
    assert not authorizer.may_speak_for(Principal("User:broker-9", "sasl", peer="x"), 9)
    assert not authorizer.allows(Principal("User:broker-9", "sasl", peer="x"), Operation.CLUSTER_ACTION, CLUSTER)


def test_principals_of_brokers_are_names_or_a_pattern_or_both() -> None:
    names, pattern = BrokerPrincipals({1: "User:one"}), BrokerPrincipals(pattern="User:b.{id}@x")
    both = BrokerPrincipals({1: "User:one"}, "User:b.{id}@x")

    def owned(principals: BrokerPrincipals) -> list[tuple[str, int]]:
        return [
            (name, broker)
            for name in ("User:one", "User:b.1@x", "User:b.2@x", "User:b-2@x")
            for broker in (1, 2)
            if principals.owns(name, broker)
        ]

    assert owned(names) == [("User:one", 1)]
    assert owned(pattern) == [("User:b.1@x", 1), ("User:b.2@x", 2)]
    assert owned(both) == [("User:one", 1), ("User:b.2@x", 2)]
    assert [each.contains("User:one") for each in (names, pattern, both)] == [True, False, True]
    assert [each.contains("User:b.1@x") for each in (names, pattern, both)] == [False, True, False]
    assert [each.contains("User:b.2@x") for each in (names, pattern, both)] == [False, True, True]
    assert [bool(each) for each in (BrokerPrincipals(), names, pattern, both)] == [False, True, True, True]


def test_ids_of_brokers_end_with_the_largest() -> None:
    principals = BrokerPrincipals(pattern="User:broker-{id}")
    assert principals.contains("User:broker-0")
    assert principals.contains("User:broker-2147483647")
    assert not principals.contains("User:broker-2147483648")
    assert principals.owns("User:broker-2147483647", 2**31 - 1)


@pytest.mark.parametrize(
    "name", ["User:broker-", "User:broker-01", "User:broker-1x", "User:broker-4294967297", "broker-1"]
)
def test_other_names_than_the_pattern_are_no_brokers(name: str) -> None:
    principals = BrokerPrincipals(pattern="User:broker-{id}")
    assert not principals.contains(name)
    assert not principals.owns(name, 1)


def test_cluster_action_speaks_for_every_broker_without_principals_of_brokers() -> None:
    authorizer = AclAuthorizer(acls=_acls(Acl("User:alice", "*", Operation.CLUSTER_ACTION), of=CLUSTER))
    assert authorizer.may_speak_for(ALICE, 1)
    assert not authorizer.may_speak_for(BOB, 1)


def test_lists_are_true_if_there_is_any_entry() -> None:
    one = (Acl("User:alice", "*", Operation.READ),)
    assert not Acls()
    assert not Acls({ORDERS: ()}, {ORDERS: ()})
    assert Acls({ORDERS: one})
    assert Acls({}, {ORDERS: one})


def test_types_do_not_share_names() -> None:
    acls = _acls(Acl("User:alice", "*", Operation.ALL), of=Resource(ResourceType.GROUP, "orders"))
    assert not acls.allow(ALICE, Operation.READ, ORDERS)

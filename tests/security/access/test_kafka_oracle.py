"""Names, principals and rights are those of a broker: compared with the JDK and Kafka's own classes in a JVM."""

import base64
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from kactl.security.access import AclAuthorizer, Acls, Operation, Principal, PrincipalRules, Resource, ResourceType
from kactl.security.access.distinguished_name import subject_of
from kactl.stores.formats.access import decode_acls
from tests.support.zookeeper_fixtures import jars

from . import test_distinguished_name, test_principal_rules
from .der import certificate, encoded_name, random_name
from .oracle import SecurityOracle

__all__ = ["jars"]

pytestmark = pytest.mark.slow

NAMES = 2_000
RULE_CASES = 400
ACL_SETS = 400
REQUESTS = 25


@pytest.fixture(scope="module")
def oracle(jars: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecurityOracle]:
    with SecurityOracle(tmp_path_factory.mktemp("oracle"), jars=jars) as running:
        yield running


def test_subjects_have_the_text_of_java(oracle: SecurityOracle) -> None:
    draws = random.Random(42)
    names = [encoded_name(random_name(draws)) for _ in range(NAMES)]
    texts = oracle.ask("names", names=[base64.b64encode(name).decode() for name in names])
    compared = [
        (subject_of(certificate(name)), text) for name, text in zip(names, texts, strict=True) if text is not None
    ]
    assert len(compared) > NAMES * 0.9
    assert [pair for pair in compared if pair[0] != pair[1]] == []


def test_expected_subjects_are_those_of_java(oracle: SecurityOracle) -> None:
    names = [base64.b64encode(encoded_name(name)).decode() for name, _ in test_distinguished_name.SUBJECTS]
    assert oracle.ask("names", names=names) == [text for _, text in test_distinguished_name.SUBJECTS]


# -- mapping rules -----------------------------------------------------------------------------------------------------

# Examples of Kafka's documentation and tests.
DOCUMENTED = [
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,DEFAULT",
    "RULE:^CN=(.*),OU=ServiceUsers.*$/$1/,RULE:^CN=(.*),OU=(.*),O=(.*),L=(.*),ST=(.*),C=(.*)$/$1@$2/L,"
    "RULE:^cn=(.*),ou=(.*),dc=(.*),dc=(.*)$/$1@$2/U,RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U,DEFAULT",
    "DEFAULT",
    " DEFAULT , RULE:a/b/ ",
    r"RULE:^CN=([^,ADEFLTU,]+)(,.*|$)/$1/",
    r"RULE:^CN=([^,DEFAULT,]+)(,.*|$)/$1/,RULE:.*/x/",
    r"RULE:^CN=(\w+)\/(.*)$/$1\/$2/U",
    "RULE:^CN=(.*?),.*$/$1$2$0/",
    "RULE:^CN=(.*?),.*$/$12/",
    "RULE:.*/one/L,DEFAULT",
    "RULE:(?i)cn=(a).*/$1/",
    "RULE:(a|b)*CN.*/x/",
    "RULE:CN=a(?!b).*/y/",
    "RULE:CN=(?:alice|bob),(.*)/$1-$1/U",
    "RULE:CN=a\\, b.*/z/",
    "",
    "RULE",
    "RULE:a/b",
    "RULE:a/b/X",
    "DEFAULTS",
]
SUBJECTS = [
    "CN=duke,OU=ServiceUsers,O=Org,C=US",
    "CN=duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US",
    "cn=duke,ou=sme,dc=mycp,dc=com",
    "CN=kafka/host.example,O=Example",
    "CN=a\\, b,O=x",
    "CN=alice,CN=bob",
    "CN=Straße,O=Ünï",
    "O=nothing",
    "",
    "CN=a\nb,O=x",
    "CN=x\x85,O=y",
]
_ATOMS = [
    "CN=",
    "(.*?)",
    "(.*)",
    "([^,]+)",
    ",",
    "O",
    ".",
    r"\w",
    r"\d+",
    "^",
    "$",
    "|",
    "a",
    "(?:b|c)",
    "[a-zA-Z0-9.-]*",
    r"\/",
    "?",
]
_REPLACEMENTS = ["$1", "$2", "$0", "$10", "x", "@", r"\/", r"\$", "$", "\\\\"]


def _random_rules(draws: random.Random) -> str:
    rules = []
    for _ in range(draws.randint(1, 3)):
        pattern = "".join(draws.choices(_ATOMS, k=draws.randint(1, 6)))
        replacement = "".join(draws.choices(_REPLACEMENTS, k=draws.randint(0, 3)))
        rules.append(draws.choice(["DEFAULT", *[f"RULE:{pattern}/{replacement}/{draws.choice(['', 'L', 'U'])}"] * 4]))
    return draws.choice([",", ", ", " , "]).join(rules)


def _mapped(rules: str) -> list[str | None] | None:
    try:
        known = PrincipalRules(rules)
    except ValueError:
        return None
    return [known.name_of(subject) for subject in SUBJECTS]


def test_mapping_rules_give_the_names_of_kafka(oracle: SecurityOracle) -> None:
    """Rules that kactl accepts have the same meaning. Some of Kafka's rules are rejected when kactl starts."""
    draws = random.Random(43)
    cases = [*DOCUMENTED, *(_random_rules(draws) for _ in range(RULE_CASES))]
    answers = oracle.ask("rules", cases=[{"rules": rules, "names": SUBJECTS} for rules in cases])
    accepted = 0
    for rules, answer in zip(cases, answers, strict=True):
        mapped = _mapped(rules)
        if mapped is None:
            continue
        accepted += 1
        assert answer == mapped, rules
    assert accepted > len(cases) / 4
    documented = [_mapped(rules) for rules in DOCUMENTED[:-5]]
    assert None not in documented


def test_expected_names_are_those_of_kafka(oracle: SecurityOracle) -> None:
    cases = [{"rules": rules, "names": [subject]} for rules, subject, _ in test_principal_rules.MAPPED]
    answers = oracle.ask("rules", cases=cases)
    expected = [[name] for *_, name in test_principal_rules.MAPPED]
    assert [each for each in zip(cases, answers, expected, strict=True) if each[1] != each[2]] == []


# -- rights ------------------------------------------------------------------------------------------------------------

_PRINCIPALS = ["User:alice", "User:bob", "User:*", "User:CN=a,O=b", "User:ANONYMOUS"]
_HOSTS = ["10.0.0.1", "10.0.0.2", "0:0:0:0:0:0:0:1"]
_NAMES = ["a", "ab", "abc", "b", "orders", "orders-1", "kafka-cluster"]
# kactl checks no other operations; Kafka stores entries with any of these.
_OPERATIONS = [operation.value for operation in Operation]


def _random_lists(draws: random.Random) -> list[dict[str, Any]]:
    lists: dict[tuple[str, str, str], dict[str, Any]] = {}
    for _ in range(draws.randint(0, 8)):
        kind, name = draws.choice(list(ResourceType)).value, draws.choice([*_NAMES, "*"])
        pattern = draws.choice(["LITERAL", "PREFIXED"])
        if draws.random() < 0.6:
            kind = "Topic"
        acls = [
            {
                "principal": draws.choice(_PRINCIPALS),
                "permissionType": draws.choice(["Allow", "Allow", "Deny"]),
                "host": draws.choice([*_HOSTS, "*", "*"]),
                "operation": draws.choice([*_OPERATIONS, "All", "Read", "Write", "Alter", "Describe"]),
            }
            for _ in range(draws.randint(0, 4))
        ]
        data = json.dumps({"version": 1, "acls": acls})
        lists[kind, name, pattern] = {"type": kind, "name": name, "pattern": pattern, "data": data}
    return list(lists.values())


def _random_request(draws: random.Random) -> dict[str, str]:
    return {
        "principal": draws.choice(_PRINCIPALS),
        "host": draws.choice(_HOSTS),
        "operation": draws.choice([*_OPERATIONS, "Describe", "DescribeConfigs"]),
        "type": draws.choice(["Topic", "Topic", draws.choice(list(ResourceType)).value]),
        "name": draws.choice(_NAMES),
    }


def _decisions(
    lists: list[dict[str, Any]], requests: list[dict[str, str]], super_users: list[str], if_no_acl: bool
) -> list[bool]:
    stored: dict[str, dict[Resource, Any]] = {"LITERAL": {}, "PREFIXED": {}}
    for one in lists:
        resource = Resource(ResourceType(one["type"]), one["name"])
        stored[one["pattern"]][resource] = decode_acls("here", one["data"].encode())
    authorizer = AclAuthorizer(
        super_users=super_users, if_no_acl=if_no_acl, acls=Acls(stored["LITERAL"], stored["PREFIXED"])
    )
    return [
        authorizer.allows(
            Principal(request["principal"], "sasl", peer=request["host"]),
            Operation(request["operation"]),
            Resource(ResourceType(request["type"]), request["name"]),
        )
        for request in requests
    ]


def test_decisions_are_those_of_acl_authorizer(oracle: SecurityOracle) -> None:
    draws = random.Random(44)
    allowed = 0
    for number in range(ACL_SETS):
        lists, if_no_acl = _random_lists(draws), draws.random() < 0.3
        super_users = draws.choice([[], [], ["User:bob"], ["User:CN=a,O=b", "User:alice"]])
        requests = [_random_request(draws) for _ in range(REQUESTS)]
        answers = oracle.ask("rights", lists=lists, requests=requests, super_users=super_users, if_no_acl=if_no_acl)
        decisions = _decisions(lists, requests, super_users, if_no_acl)
        different = [pair for pair in zip(requests, answers, decisions, strict=True) if pair[1] != pair[2]]
        assert different == [], (number, lists, super_users, if_no_acl)
        allowed += sum(decisions)
    assert ACL_SETS * REQUESTS * 0.1 < allowed < ACL_SETS * REQUESTS * 0.9

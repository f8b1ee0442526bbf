"""Rules that cannot be used are rejected when they are read."""

import pytest

from kactl.access import PrincipalRules


@pytest.mark.parametrize(
    "rules",
    [
        "",
        "RULE:a/b",
        "RULE:(/x/",
        "RULE:a{1,99999999999999999999}/x/",
        "RULE:" + "(" * 5_000 + ")" * 5_000 + "/x/",
        "RULE:a/$1/",
        "RULE:(a)/$4 $5/",
        "RULE:(a)/b\\\\/,RULE:a/\\",
        "RULE:a\nb/x/",
        r"RULE:\bCN/x/",
        r"RULE:\p{L}/x/",
        "RULE:(?<=a)b/x/",
        "RULE:(?<name>a)/x/",
        "RULE:a++/x/",
        "RULE:[a[b]]/x/",
        "RULE:[a&&b]/x/",
        "RULE:a{,3}/x/",
        r"RULE:\Qa.b\E/x/",
        r"RULE:(a)\10/x/",
    ],
)
def test_rules_that_python_reads_differently_are_rejected(rules: str) -> None:
    with pytest.raises(ValueError, match=r"rule|pattern|replacement"):
        PrincipalRules(rules)


def test_name_without_a_rule_has_no_principal() -> None:
    assert PrincipalRules("RULE:^CN=(.*)$/$1/U").name_of("O=Example") is None
    assert PrincipalRules("RULE:^CN=(.*)$/$1/U").name_of("CN=alice") == "ALICE"

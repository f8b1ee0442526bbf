"""Rules give the names of Kafka, or are rejected when they are read.

`test_kafka_oracle` compares the names with those of Kafka's own class.
"""

import re
from typing import Final

import pytest

from kactl.security.access import PrincipalRules


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
        r"RULE:(a)\101/x/",
        "RULE:" + "(a)" * 10 + r"\10a/x/",
        r"RULE:\x4/x/",
        r"RULE:\u004/x/",
        "RULE:a(?i)b/x/",
        "RULE:*/x/",
        "RULE:^*/x/",
        "RULE:a|*/x/",
        "RULE:(*a)/x/",
        "RULE:a*+/x/",
        "RULE:a???/x/",
        "RULE:a{2}{3}/x/",
        "RULE:a{/x/",
        "RULE:a}/x/",
        "RULE:a]/x/",
        "RULE:(a/x/",
        "RULE:a)/x/",
        "RULE:[/x/",
        "RULE:[^/x/",
        "RULE:[ab/x/",
        "RULE:[]a]/x/",
        "RULE:[][a]/x/",
        "RULE:[a]++/x/",
        "RULE:[^]a]/x/",
        "RULE:[a^]/x/",
        "RULE:[a||b]/x/",
        "RULE:[a--b]/x/",
        "RULE:[a~~b]/x/",
        r"RULE:(a)[\1]/x/",
        r"RULE:[\p]/x/",
        "RULE:[z-a]/x/",
        "RULE:(a)/$/",
        "RULE:(a)/$a/",
        "RULE:(a)/$ü/",
        "RULE:(a)/$٣/",
        "RULE:(a)/$²/",
        "RULE:a/b/X",
        "RULE:a/b/LU",
        "RULE:a/b/l",
        "RULE:a/b/ c",
        "RULE",
        "DEFAULTS",
        "default",
        "rule:a/b/",
        "DEFAULT,x",
        " , ,",
        "DEFAULT\x7f",
        "DEFAULT\x1f",
        "DEFAULT,\tDEFAULT",
    ],
)
def test_rules_that_python_reads_differently_are_rejected(rules: str) -> None:
    with pytest.raises(ValueError, match=r"rule|pattern|replacement"):
        PrincipalRules(rules)


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ("RULE:CN=a{,3}/x/", "the pattern 'CN=a{,3}' has '{,3', which is not supported"),
        ("RULE:*ab/x/", "the pattern '*ab' has '*ab', which is not supported"),
        ("RULE:(+ab)/x/", "the pattern '(+ab)' has '+ab', which is not supported"),
        ("RULE:a/x/,RULE:b[a[/x/", "the pattern 'b[a[' has '[', which is not supported"),
        ("RULE:b[a/x/", "the pattern 'b[a' has a class without an end"),
        ("RULE:(a)/b$c/", "the replacement 'b$c' has a reference to a group that does not exist"),
        ("DEFAULT, RULE:a/b", "'RULE:a/b' is no rule: write RULE:pattern/replacement/, or DEFAULT"),
        (",", "there is no rule: write DEFAULT to keep names as they are"),
        ("DEFAULT\n", "the rules contain control characters"),
    ],
)
def test_rejection_quotes_the_rule(rules: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(reason)}$"):
        PrincipalRules(rules)


TWELVE: Final = "(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)(k)(l)"
LETTERS: Final = "abcdefghijkl"
# Rules, the name of a certificate, and the name of the principal.
MAPPED: Final[list[tuple[str, str, str | None]]] = [
    ("DEFAULT", "CN=Alice,O=x", "CN=Alice,O=x"),
    ("DEFAULT", "", ""),
    # The first rule that matches the whole name counts.
    ("RULE:CN=(.*?),O=x/$1/,DEFAULT", "CN=Alice,O=x", "Alice"),
    ("RULE:CN=(.*?),O=x/$1/,DEFAULT", "CN=Alice,O=xy", "CN=Alice,O=xy"),
    ("RULE:CN=(.*?),O=x/$1/,RULE:.*=(.).*/$1/", "CN=Alice,O=xy", "x"),
    ("DEFAULT,RULE:CN=(.*?),O=x/$1/", "CN=Alice,O=x", "CN=Alice,O=x"),
    ("RULE:N=a/x/", "CN=a", None),
    ("RULE:CN/x/", "CN=a", None),
    # Rules are separated by commas, with blanks or without; a rule may be empty.
    ("  RULE:b/x/ , , RULE:a,a/y/,", "a,a", "y"),
    ("RULE:b/x/ , , RULE:a/y,z/U,DEFAULT", "a", "Y,Z"),
    # Case.
    ("RULE:CN=(.*)/$1x/L", "CN=AliÇe", "aliçex"),
    ("RULE:CN=(.*)/$1x/U", "CN=Aliçe", "ALIÇEX"),
    ("RULE:CN=(.*)/$1x/", "CN=Aliçe", "Aliçex"),
    ("RULE:(?i)cn=([a-z]*)/$1/", "CN=Alice", "Alice"),
    ("RULE:(?i)cn=ü/x/", "CN=Ü", None),
    # Every match is replaced, also an empty one behind another.
    ("RULE:/x/", "", "x"),
    ("RULE:/x/", "a", None),
    ("RULE:.*/x/", "", "x"),
    ("RULE:.*/x/", "abc", "xx"),
    ("RULE:a*?/x/", "aa", "xaxax"),
    ("RULE:^a*?$/x/", "aa", "x"),
    ("RULE:a+?/x/", "aa", "xx"),
    ("RULE:a{2}/x/", "aa", "x"),
    ("RULE:a{2}/x/", "aaa", None),
    ("RULE:a{1,}?b/x/", "aab", "x"),
    ("RULE:(?:a|b)+/x/", "abba", "x"),
    # Constructs of patterns.
    (r"RULE:(\w)\1/$1/", "aa", "a"),
    (r"RULE:(\w)\1/$1/", "ab", None),
    (r"RULE:\w/x/", "ü", None),
    (r"RULE:\d/x/", "٣", None),
    (r"RULE:\x41\u00e9\./x/", "Aé.", "x"),
    (r"RULE:CN=(\w+)\/(.*)$/$1\/$2/", "CN=kafka/host", "kafka/host"),
    (r"RULE:[a\].\w-]+/x/", "a].B-", "x"),
    ("RULE:[^,]+/x/", "ab", "x"),
    ("RULE:[^,]+/x/", "a,b", None),
    ("RULE:[&|~.-]+/x/", "&|~.-", "x"),
    ("RULE:a(?=b)(?!c).(?:c|d)/x/", "abd", "x"),
    # Line ends.
    ("RULE:a.b/x/", "a\rb", None),
    ("RULE:a.b/x/", "a\u2028b", None),
    ("RULE:[a].b/x/", "a\rb", None),
    ("RULE:a.b/x/", "a\tb", "x"),
    (r"RULE:(a)$\s/$1/", "a\n", "a"),
    (r"RULE:(a)$\s\s/$1/", "a\r\n", "a"),
    (r"RULE:(a)$\s\s/$1/", "a\n\n", None),
    ("RULE:(a)$[^b]/$1/", "a\x85", "a"),
    # Groups in replacements.
    ("RULE:CN=(a)?b/<$1>/", "CN=b", "<>"),
    ("RULE:CN=(a)(b)/$2$1$0/", "CN=ab", "baCN=ab"),
    ("RULE:CN=(a)//", "CN=a", ""),
    ("RULE:CN=(a)/$12/", "CN=a", "a2"),
    ("RULE:CN=(a)/$1b/", "CN=a", "ab"),
    ("RULE:CN=(a)/$1ü/", "CN=a", "aü"),
    ("RULE:CN=(a)/$1٣/", "CN=a", "a٣"),
    (f"RULE:{TWELVE}/$12$11$10$1/", LETTERS, "lkja"),
    (f"RULE:{TWELVE}/$12x$13$120$100/", LETTERS, "lxa3l0j0"),
    (f"RULE:{TWELVE}/$12٣$12ü/", LETTERS, "l٣lü"),
    (f"RULE:{TWELVE}/$01$00/", LETTERS, f"a{LETTERS}"),
    # A reference to a group that does not exist is text, if there is any group.
    ("RULE:CN=(a)/$1$2/", "CN=a", "a$2"),
    ("RULE:CN=(a)/$29$1/", "CN=a", "$29a"),
    ("RULE:CN=(a)/$1$0$00/", "CN=a", "aCN=aCN=a"),
    # Backslashes.
    (r"RULE:CN=(a)/\$1/", "CN=a", "$1"),
    (r"RULE:CN=(a)/\\$1\b\\/", "CN=a", "\\ab\\"),
]


@pytest.mark.parametrize(("rules", "subject", "name"), MAPPED)
def test_rules_give_the_names_of_kafka(rules: str, subject: str, name: str | None) -> None:
    assert PrincipalRules(rules).name_of(subject) == name


def test_names_are_kept_without_rules() -> None:
    assert PrincipalRules().name_of("CN=alice,O=x") == "CN=alice,O=x"


def test_name_without_a_rule_has_no_principal() -> None:
    assert PrincipalRules("RULE:^CN=(.*)$/$1/U").name_of("O=Example") is None
    assert PrincipalRules("RULE:^CN=(.*)$/$1/U").name_of("CN=alice") == "ALICE"

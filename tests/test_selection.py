"""The choice of tests that are left to longer targets."""

import pytest

from tests.support import selection, tree


def test_every_rule_matches_a_test(request: pytest.FixtureRequest) -> None:
    assert request.config.stash[selection.UNUSED] == []


@pytest.mark.parametrize(
    "rule", [rule for rule in (*selection.LONG, *selection.OLD) if rule.file], ids=lambda rule: rule.file
)
def test_a_test_of_the_same_subject_stays(rule: selection.Rule) -> None:
    file, _, name = rule.stays.rpartition("::")
    path = tree.ROOT / "tests" / (file or (name if name.endswith(".py") else rule.file))

    assert (tree.ROOT / "tests" / rule.file).is_file()
    assert name.endswith(".py") or f" {name}(" in path.read_text(encoding="utf-8")
    assert path.is_file()

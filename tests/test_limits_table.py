"""docs/limits.md lists the limits that the code has."""

import pytest

from tests.support import limits_table


def test_page_lists_the_limits_of_the_code() -> None:
    text = limits_table.PAGE.read_text(encoding="utf-8")
    assert limits_table.page(text) == text, "run: python -m tests.support.limits_table"


@pytest.mark.parametrize(
    ("count", "text"), [(12, "12 bytes"), (8190, "8 KiB"), (1 << 20, "1 MiB"), (100 << 20, "100 MiB")]
)
def test_sizes_are_rounded_to_their_unit(count: int, text: str) -> None:
    assert limits_table.size(count) == text

"""Numbers of things as text."""

import pytest

from kactl.runtime.plural import count


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (0, "partition", "0 partitions"),
        (1, "partition", "1 partition"),
        (1204, "partition", "1,204 partitions"),
        (1, "process", "1 process"),
        (2, "process", "2 processes"),
    ],
)
def test_nouns_agree_with_their_number(number: int, noun: str, text: str) -> None:
    assert count(number, noun) == text

"""The pages that are made say what they are made from."""

from tests.diagrams import PAGE, page


def test_the_diagrams_are_those_of_the_tables() -> None:
    assert PAGE.read_text() == page(), "write it anew: python -m tests.diagrams"

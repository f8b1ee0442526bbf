"""The path of a broker's failure stays short, and leads downward; see `tests.support.path`."""

from tests.support import path


def test_a_controller_loads_few_modules() -> None:
    assert path.loaded() <= 180

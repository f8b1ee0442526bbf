"""What all tests share: the event loop's backend, how random stories are told, and which tests run side by side."""

from pathlib import Path
from typing import Final

import pytest
from hypothesis import settings

# The same stories on every run, so that a red test is red for everyone; a failure prints what reproduces it.
# No deadline: two busy cores make honest code slow, and time is measured in bench/, not here.
settings.register_profile("default", derandomize=True, deadline=None, print_blob=True)
# For hunting: other stories each time, and many of them. `pytest --hypothesis-profile=wide`
settings.register_profile("wide", max_examples=2_000, deadline=None, print_blob=True)
settings.load_profile("default")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """asyncio is what kactl runs on; uvloop is a faster form of it."""
    return "asyncio"


HERE: Final = Path(__file__).parent


def pytest_itemcollected(item: pytest.Item) -> None:
    """With several workers a file's tests stay together, and so do all that share a cluster of real brokers.

    These mostly wait, for sessions to end above all; so everything else gets done meanwhile. The workers look for
    groups before any other hook sees the list of tests.
    """
    file = item.path.relative_to(HERE)
    item.add_marker(pytest.mark.xdist_group("brokers" if file.parts[0] == "interop" else str(file)))

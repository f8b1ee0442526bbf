"""What all tests share: the event loop's backend, and how random stories are told."""

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

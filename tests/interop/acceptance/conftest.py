"""The acceptance checklist, told once for each protocol level, against one cluster for each.

The files are read in the order of their names and the tests in the order in which they stand; each leaves the cluster
at rest, and the last file looks back at all that was ever written.
"""

from collections.abc import Iterator

import pytest

from .bench import Bench


@pytest.fixture(scope="package", params=["2.6", "3.9"])
def level(request: pytest.FixtureRequest) -> str:
    """The inter-broker protocol version."""
    return str(request.param)


@pytest.fixture(scope="package")
def bench(jars: str, level: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with Bench(tmp_path_factory.mktemp(f"acceptance-{level}"), level) as bench:
        yield bench

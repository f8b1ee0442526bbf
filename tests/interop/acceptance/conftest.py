"""Acceptance checklist, run once for each protocol level, with one cluster per level.

Files run in the order of their names and tests in the order of definition. Each test leaves the cluster at rest, and
the last file checks everything that was written.
"""

from collections.abc import Iterator

import pytest

from .bench import Bench
from .secure_bench import SecureBench


@pytest.fixture(
    scope="package",
    params=["2.6", "3.9", *(pytest.param(f"{level}, secured", marks=pytest.mark.long) for level in ("2.6", "3.9"))],
)
def level(request: pytest.FixtureRequest) -> str:
    """Return the inter-broker protocol version, and whether the cluster has logins, TLS and permissions."""
    return str(request.param)


@pytest.fixture(scope="package")
def bench(jars: str, level: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    version, _, secured = level.partition(", ")
    kind = SecureBench if secured else Bench
    with kind(tmp_path_factory.mktemp(f"acceptance-{version}-{secured}"), version) as bench:
        yield bench

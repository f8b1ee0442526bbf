"""Old brokers are started like others; those of one version run in `make test`, all others in `make old-brokers`."""

from collections.abc import Iterator

import pytest

from ..traffic import Traffic
from .bench import MARGIN_S, VERSIONS, OldBench, level_of

KEPT = "3.0.2"


@pytest.fixture(
    scope="module",
    params=[version if version == KEPT else pytest.param(version, marks=pytest.mark.old) for version in VERSIONS],
)
def bench(jars: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OldBench]:
    version = str(request.param)
    with OldBench(tmp_path_factory.mktemp(f"old-{version}"), level_of(version), [version] * 3) as bench:
        bench.start_other()
        yield bench


@pytest.fixture(scope="module")
def traffic(bench: OldBench) -> Iterator[Traffic]:
    """Producer and consumer that run during all tests of a version."""
    bench.create_topic("traffic", 6)
    with Traffic(bench.cluster.bootstrap, "traffic") as traffic:
        traffic.wait_acknowledged(100, timeout_s=MARGIN_S)
        yield traffic

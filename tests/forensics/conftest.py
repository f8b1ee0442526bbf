"""One small Spark session on loopback for all tests, because its start takes longer than the tests."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from kactl.forensics.session import spark_session

# The path for few events; `bench.forensics` covers the other one.
_SMALL = {"spark.default.parallelism": "2", "spark.python.worker.reuse": "true"}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with spark_session(master="local[2]", memory="512m", events=0, more=_SMALL) as session:
        yield session

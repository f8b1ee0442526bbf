"""One Spark for all tests, small and on loopback; it takes longer to start than all of them take to run."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from kactl.forensics.session import spark_session

# The way of few events; `bench.forensics`, which holds itself to nothing unparsed, runs the other one.
_SMALL = {"spark.default.parallelism": "2", "spark.python.worker.reuse": "true"}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with spark_session(master="local[2]", memory="512m", events=0, more=_SMALL) as session:
        yield session

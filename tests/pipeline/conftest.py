"""One Spark for all tests, small and on loopback; it takes longer to start than all of them take to run."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from kactl.pipeline.session import spark_session

_SMALL = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    # Most of the time is Java's start. Compiling less, it keeps too little room for what all the jobs are compiled to.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m",
    "spark.python.worker.reuse": "true",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with spark_session(master="local[2]", memory="512m", more=_SMALL) as session:
        yield session

"""Spark, started as this pipeline needs it: on this machine, or on a cluster by its address.

Times are UTC, nothing listens but on loopback, and Spark says nothing but errors.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .java import find_java, home_for_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL: Final = "local[*]"
# What the driver may use; on one machine that is all of Spark. Parsing takes next to nothing, the jobs sort.
MEMORY: Final = "2g"
# A shuffle over 200 partitions, the default, is made for clusters; adaptive execution joins what is small anyway.
_LOCAL_SHUFFLE_PARTITIONS: Final = 16
# Of so few events Spark spends its time on plans, and not on rows: it should not compile for a second what runs for ten
# milliseconds.
FEW_EVENTS: Final = 100_000
_FEW: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC",
}
# Events are written into a folder for each kind and day; so many are open at a time before rows are sorted by folder.
_OPEN_FOLDERS: Final = 32
_JAVA_ENDS_S: Final = 10.0
_LOG4J: Final = """\
# Both the same: Spark compares them, and tells the world if it has to change one.
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
logger.all.name = org
logger.all.level = error
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
# What is raised is told of by whoever raised it, in a sentence.
appender.stderr.layout.alwaysWriteExceptions = false
"""


def settings(master: str, memory: str, *, events: int | None = None) -> dict[str, str]:
    """How Spark is set, by its own names.

    Args:
        events: how many there are; None if that is not known.
    """
    said = {
        "spark.app.name": "kactl forensics",
        "spark.master": master,
        "spark.driver.memory": memory,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.maxConcurrentOutputFileWriters": str(_OPEN_FOLDERS),
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # It would note for every column of every expression where in our code it stands.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        # Missing folders of a kind or day are no reason to ask every file for its columns.
        "spark.sql.parquet.mergeSchema": "false",
    }
    if master.startswith("local"):
        said |= {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(_LOCAL_SHUFFLE_PARTITIONS),
        }
        if events is not None and events <= FEW_EVENTS:
            said |= _FEW
    return said


@contextlib.contextmanager
def spark_session(
    *, master: str = LOCAL, memory: str = MEMORY, events: int | None = None, more: Mapping[str, str] | None = None
) -> "Iterator[SparkSession]":
    """A session, stopped at the end with the Java that was started for it. Where the process has a session already it
    is that one, as it is, and it goes on.

    Args:
        events: how many it will have to do with, where that is known beforehand; few are handled in another way. For
            `ingest` it is next to none, however long the logs: what Python parses and writes, Spark never sees.
        more: further settings, by Spark's names; they go before ours.

    Raises:
        java.NoJava: there is no Java to run it on.
    """
    java = find_java(os.environ)
    os.environ["JAVA_HOME"] = home_for_spark(java)
    if master.startswith("local"):
        # By itself it takes the first python3 on the path, which need not know of any of this.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from py4j.protocol import Py4JError
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is not None:
        yield SparkSession.Builder().getOrCreate()
        return
    with tempfile.TemporaryDirectory(prefix="kactl-spark-") as scratch:
        log4j = Path(scratch) / "log4j2.properties"
        log4j.write_text(_LOG4J, encoding="utf-8")
        said = settings(master, memory, events=events) | dict(more or {})
        said["spark.driver.extraJavaOptions"] = (
            f"-Dlog4j2.configurationFile={log4j.as_uri()} {said.get('spark.driver.extraJavaOptions', '')}".strip()
        )
        if master.startswith("local"):
            said.setdefault("spark.local.dir", scratch)
            said.setdefault("spark.sql.warehouse.dir", f"{scratch}/warehouse")
        builder = SparkSession.Builder()
        for name, value in said.items():
            builder = builder.config(name, value)
        is_our_java = SparkContext._gateway is None
        spark = builder.getOrCreate()
        try:
            yield spark
        finally:
            # A Java that was killed, as with all of our group, has stopped already.
            with contextlib.suppress(Py4JError, OSError):
                spark.stop()
            if is_our_java:
                _end_java()


def _end_java() -> None:
    """End the Java that Spark runs in: it keeps memory and options, of which the next session may want others."""
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    process = gateway and gateway.proc
    if gateway is None or process is None:  # whoever submitted us to a cluster has started it
        return
    with contextlib.suppress(Py4JError, OSError):
        gateway.shutdown()
    process.stdin.close()  # on which it waits
    try:
        process.wait(_JAVA_ENDS_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

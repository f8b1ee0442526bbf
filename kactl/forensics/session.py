"""Spark session with the settings of this pipeline, on this machine or on a cluster.

Times are UTC, a local Spark listens on loopback only, and Spark logs errors only.
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
# Memory of the driver; a local Spark has no other process. Parsing needs little memory; jobs need it to sort.
MEMORY: Final = "2g"
# The default of 200 shuffle partitions suits clusters. Adaptive execution coalesces small partitions anyway.
_LOCAL_SHUFFLE_PARTITIONS: Final = 16
# With so few events Spark spends its time on planning: compiling a stage takes a second, running it ten milliseconds.
FEW_EVENTS: Final = 100_000
# Rules of the optimizer that save time on many rows. On few rows they take longer than they save; each visits each plan
# several times. Left out are those that took most time and changed the plans of a report least.
_RULES_FOR_MANY_ROWS: Final = (
    "catalyst.optimizer.ConstantPropagation",
    "catalyst.optimizer.DecimalAggregates",
    "catalyst.optimizer.EliminateOuterJoin",
    "catalyst.optimizer.FoldablePropagation",
    "catalyst.optimizer.GenerateOptimization",
    "catalyst.optimizer.NullDownPropagation",
    "catalyst.optimizer.OptimizeCsvJsonExprs",
    "catalyst.optimizer.OptimizeUpdateFields",
    "catalyst.optimizer.OptimizeWindowFunctions",
    "catalyst.optimizer.PruneFilters",
    "catalyst.optimizer.PushFoldableIntoBranches",
    "catalyst.optimizer.RemoveRedundantAggregates",
    "catalyst.optimizer.RemoveRedundantAliases",
    "catalyst.optimizer.ReorderAssociativeOperator",
    "catalyst.optimizer.ReplaceNullWithFalseInPredicate",
    "catalyst.optimizer.SimplifyBinaryComparison",
    "catalyst.optimizer.SimplifyConditionals",
    "catalyst.optimizer.TransposeWindow",
    "catalyst.optimizer.UnwrapCastInBinaryComparison",
    "execution.datasources.PruneFileSourcePartitions",
    "execution.datasources.PullOutVariantExtractions",
    "execution.datasources.PushVariantIntoScan",
    "execution.datasources.SchemaPruning",
    "execution.dynamicpruning.PartitionPruning",
)
_FEW: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    # One task for each query, without shuffles and broadcasts; see `tables.undivided_if_small`.
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.maxSinglePartitionBytes": "1t",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.optimizer.disableHints": "true",
    "spark.sql.leafNodeDefaultParallelism": "1",
    # Without shuffles there is nothing to reduce before them: one operator for each aggregation instead of two.
    "spark.sql.execution.bypassPartialAggregation": "true",
    # The operator that sorts and limits at once is compiled; sorting and then limiting is interpreted.
    "spark.sql.execution.topKSortFallbackThreshold": "0",
    # Checks of the optimizer, stack traces for error messages, and filters inferred for large tables.
    "spark.sql.lightweightPlanChangeValidation": "false",
    "spark.sql.dataFrameQueryContext.enabled": "false",
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.optimizer.excludedRules": ",".join(f"org.apache.spark.sql.{rule}" for rule in _RULES_FOR_MANY_ROWS),
    "spark.sql.optimizer.dynamicPartitionPruning.enabled": "false",
    "spark.sql.optimizer.runtime.bloomFilter.enabled": "false",
    # Evaluators need no closures, which Spark inspects and serializes in order to check them.
    "spark.sql.execution.usePartitionEvaluator": "true",
    "spark.driver.extraJavaOptions": (
        "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC "
        # With the initial sizes of the heap and of the space of classes, garbage would be collected while both grow.
        "-XX:InitialRAMPercentage=6.25 -XX:MetaspaceSize=256m -XX:NewRatio=1 "
        # The classes are those of the installed Spark; Java would verify the code of each that it loads.
        "-XX:+IgnoreUnrecognizedVMOptions -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
    ),
}
# Jars that Java searches first, those with most of the classes that a report loads first.
_FIRST_JARS: Final = (
    "spark-catalyst_*.jar",
    "spark-sql_*.jar",
    "scala-library-*.jar",
    "spark-core_*.jar",
    "spark-sql-api_*.jar",
    "spark-common-utils_*.jar",
    "scala-reflect-*.jar",
    "hadoop-client-api-*.jar",
)
# Events are written to one folder per kind and day. Spark sorts rows by folder if more than this many would be open.
_OPEN_FOLDERS: Final = 32
_JAVA_ENDS_S: Final = 10.0
_LOG4J: Final = """\
# Both levels are equal: Spark compares them and prints a message if it has to change one.
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
logger.all.name = org
logger.all.level = error
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
# kactl prints one sentence for an exception; a stack trace would repeat it.
appender.stderr.layout.alwaysWriteExceptions = false
"""


def settings(master: str, memory: str, *, events: int | None = None) -> dict[str, str]:
    """Return the Spark configuration.

    Args:
        events: number of events; None if it is not known.
    """
    config = {
        "spark.app.name": "kactl forensics",
        "spark.master": master,
        "spark.driver.memory": memory,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        # Files for their owner only. Spark sets permissions itself, so the umask of the process is not enough.
        "spark.hadoop.fs.permissions.umask-mode": "077",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.maxConcurrentOutputFileWriters": str(_OPEN_FOLDERS),
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # Debugging would record the source line of every column expression.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        # All files have the same columns; reading the schema of each file would only take time.
        "spark.sql.parquet.mergeSchema": "false",
    }
    if master.startswith("local"):
        config |= {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(_LOCAL_SHUFFLE_PARTITIONS),
        }
        if events is not None and events <= FEW_EVENTS:
            config |= _FEW
    return config


@contextlib.contextmanager
def spark_session(
    *, master: str = LOCAL, memory: str = MEMORY, events: int | None = None, more: Mapping[str, str] | None = None
) -> "Iterator[SparkSession]":
    """Start a Spark session, and stop it at the end together with the Java process started for it.

    If the process already has a session, it is used unchanged and not stopped.

    Args:
        events: number of events to process, if known; small numbers get another configuration. For `ingest` it is 0
            regardless of the size of the logs, because events are parsed and written by Python, not by Spark.
        more: further Spark settings, which override those of this module.

    Raises:
        java.NoJava: there is no suitable Java runtime.
    """
    java = find_java(os.environ)
    os.environ["JAVA_HOME"] = home_for_spark(java)
    if master.startswith("local"):
        # By default Spark starts the first python3 on the path, which may lack kactl.
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
        config = settings(master, memory, events=events) | dict(more or {})
        config["spark.driver.extraJavaOptions"] = (
            f"-Dlog4j2.configurationFile={log4j.as_uri()} {config.get('spark.driver.extraJavaOptions', '')}".strip()
        )
        if master.startswith("local"):
            config.setdefault("spark.local.dir", scratch)
            config.setdefault("spark.sql.warehouse.dir", f"{scratch}/warehouse")
            config.setdefault("spark.driver.extraClassPath", _first_jars())
        builder = SparkSession.Builder()
        for name, value in config.items():
            builder = builder.config(name, value)
        starts_java = SparkContext._gateway is None
        spark = builder.getOrCreate()
        try:
            yield spark
        finally:
            # Java may have been killed already, with the whole process group.
            with contextlib.suppress(Py4JError, OSError):
                spark.stop()
            if starts_java:
                _end_java()


def _first_jars() -> str:
    """Return the jars with most of the classes. Java searches the others, some 270, only for classes not in these."""
    from pyspark.find_spark_home import _find_spark_home

    jars = Path(_find_spark_home()) / "jars"
    return os.pathsep.join(str(jar) for pattern in _FIRST_JARS for jar in sorted(jars.glob(pattern)))


def _end_java() -> None:
    """Stop the Java process of Spark, because the next session may need other memory settings and options."""
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    process = gateway and gateway.proc
    if gateway is None or process is None:  # spark-submit started Java
        return
    with contextlib.suppress(Py4JError, OSError):
        gateway.shutdown()
    process.stdin.close()  # Java exits when its standard input is closed
    try:
        process.wait(_JAVA_ENDS_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()

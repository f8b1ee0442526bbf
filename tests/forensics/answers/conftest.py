"""One short incident, ingested, and the results of every job on it."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kactl.cli.forensic_inputs import job_results
from kactl.forensics.ingest import ingest
from kactl.forensics.jobs.catalog import Results
from tests.forensics.jobs.tables import controller_line, line

STATE = (
    "LeaderAndIsr(leader={leader}, leaderEpoch={epoch}, isr=List({isr}), leaderRecoveryState=RECOVERED, "
    "partitionEpoch={epoch})"
)
LEADS = (
    "[Broker id={broker}] Leader orders-0 with topic id Some(AAAAAAAAAAAAAAAAAAAAAA) starts at leader epoch {epoch} "
    "from "
    "offset {offset} with partition epoch {epoch}, high watermark {offset}, ISR [{isr}], adding replicas [] and "
    "removing "
    "replicas [] . Previous leader Some(1) and previous leader epoch was {before}."
)
CONTROLLER = "".join(
    [
        controller_line(
            -60, 2, "2 successfully elected as the controller. Epoch incremented to 6 and epoch zk version is now 6"
        ),
        controller_line(10, 2, "Newly added brokers: , deleted brokers: 1, bounced brokers: , all live brokers: 2"),
    ]
)
CHANGES = "".join(
    [
        line(
            -50,
            "[Controller id=2 epoch=6] Changed partition orders-0 state from NonExistentPartition to NewPartition with "
            "assigned replicas 1,2",
        ),
        line(
            -49,
            "[Controller id=2 epoch=6] Changed partition orders-0 from NewPartition to OnlinePartition with state "
            + STATE.format(leader=1, epoch=0, isr="1, 2"),
        ),
        line(
            11,
            "[Controller id=2 epoch=6] Changed partition orders-0 from OfflinePartition to OnlinePartition with state "
            + STATE.format(leader=2, epoch=1, isr="2"),
        ),
        line(11.5, LEADS.format(broker=2, epoch=1, offset=100, isr="2", before=0)),
    ]
)
BROKER_1 = line(-48, LEADS.format(broker=1, epoch=0, offset=0, isr="1,2", before=-1))


@pytest.fixture(scope="package")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Writes logs in which broker 1 leads and fails, and broker 2 takes over."""
    logs = tmp_path_factory.mktemp("logs")
    for name, text in {
        "2/controller.log": CONTROLLER,
        "2/state-change.log": CHANGES,
        "1/state-change.log": BROKER_1,
    }.items():
        (logs / name).parent.mkdir(exist_ok=True)
        (logs / name).write_text(text)
    return logs


@pytest.fixture(scope="package")
def folder(spark: SparkSession, logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder of the ingested logs."""
    out = tmp_path_factory.mktemp("out") / "forensics"
    ingest(spark, [str(logs)], str(out))
    return out


@pytest.fixture(scope="package")
def progress() -> list[str]:
    """Returns the calls of the progress callback, with the names of the running jobs."""
    return []


@pytest.fixture(scope="package")
def results(spark: SparkSession, folder: Path, progress: list[str]) -> Results:
    """Runs the jobs in a folder with files of a killed run."""
    (folder / ".jobs-killed").mkdir()
    return job_results(spark, str(folder), lambda step, done, total: progress.append(step))

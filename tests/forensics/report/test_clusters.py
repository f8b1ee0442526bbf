"""Logs of several clusters are detected by topics and controllers that exist at once."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from kactl.forensics.events import COLUMNS
from kactl.forensics.report.clusters import SeveralClusters, check_one_cluster
from kactl.forensics.tables import FILE_COLUMNS
from tests.forensics.jobs.tables import moment, table

EAST, WEST = "east/server.log", "west/server.log"
# Half an hour.
LONG = (0, 1800)
OFTEN = (0, 600, 1200, 1800)


def leads(file_id: int, topic_id: str, times: tuple[int, ...], topic: str = "pay") -> list[dict[str, Any]]:
    row = {"file_id": file_id, "type": "leads", "topic": topic, "topic_id": topic_id}
    return [row | {"ts": moment(time)} for time in times]


def acts(file_id: int, controller: int, epoch: int, times: tuple[int, ...]) -> list[dict[str, Any]]:
    row = {"file_id": file_id, "type": "partition", "role": "controller"}
    return [row | {"controller": controller, "controller_epoch": epoch, "ts": moment(time)} for time in times]


def check(spark: SparkSession, rows: list[dict[str, Any]]) -> None:
    files = [{"file_id": number, "path": path} for number, path in enumerate((EAST, WEST))]
    check_one_cluster({"events": table(spark, COLUMNS, rows), "files": table(spark, FILE_COLUMNS, files)})


@pytest.mark.parametrize(
    ("rows", "evidence"),
    [
        (leads(0, "AAA", LONG) + leads(1, "BBB", (180, 1980)), "topic pay has two ids at once, AAA and BBB"),
        (acts(0, 3, 12, OFTEN) + acts(1, 3, 40, (180, 1980)), "controllers 3 with epoch 12 and 3 with epoch 40 acted"),
        (acts(0, 1, 12, OFTEN) + acts(1, 2, 12, (180, 1980)), "controllers 1 with epoch 12 and 2 with epoch 12 acted"),
    ],
    ids=["topics", "epochs", "one epoch"],
)
def test_clusters_in_one_folder_are_refused(spark: SparkSession, rows: list[dict[str, Any]], evidence: str) -> None:
    with pytest.raises(SeveralClusters, match=evidence) as raised:
        check(spark, rows)

    assert f"for example in {EAST} and {WEST}" in str(raised.value)


@pytest.mark.parametrize(
    "rows",
    [
        leads(0, "AAA", (0, 900)) + leads(1, "BBB", (901, 1800)),
        leads(0, "AAA", LONG) + leads(1, "BBB", LONG, topic="orders"),
        acts(0, 3, 12, LONG) + acts(1, 1, 13, (1790, 1980)),
        acts(0, 3, 12, OFTEN) + acts(1, 1, 13, (180, 1980)),
        acts(0, 3, 12, LONG) + acts(1, 1, 14, (180, 1980)),
        acts(0, 3, 12, (0, 700)) + acts(1, 1, 15, (690, 1980)),
    ],
    ids=[
        "created again",
        "two topics",
        "replaced controller",
        "replaced and goes on",
        "resumed controller",
        "epochs between are not logged",
    ],
)
def test_history_of_one_cluster_is_accepted(spark: SparkSession, rows: list[dict[str, Any]]) -> None:
    check(spark, rows)

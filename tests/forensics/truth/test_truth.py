"""Every incident is found within its bounds, and no other."""

import pytest
from pyspark.sql import SparkSession

from tests.support.kafka_logs import check

from .incidents import KINDS, Analysis, analyse

pytestmark = pytest.mark.long


@pytest.fixture(scope="module", params=KINDS)
def analysis(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Analysis:
    return analyse(spark, KINDS[request.param], tmp_path_factory.mktemp(request.param))


def test_every_line_is_read_and_parsed(analysis: Analysis) -> None:
    assert analysis.done.manifest.lines == analysis.truth.lines
    assert analysis.done.manifest.unparsed == 0, [file.samples for file in analysis.done.files if file.samples]


def test_clock_offsets_match_the_truth(analysis: Analysis) -> None:
    assert check.skew(analysis.truth, analysis.rows("skew")) == []


def test_every_outage_is_within_its_bounds_and_none_is_invented(analysis: Analysis) -> None:
    assert check.outages(analysis.truth, analysis.rows("outages"), analysis.clock) == []


def test_every_lost_record_is_counted_and_none_is_invented(analysis: Analysis) -> None:
    assert check.losses(analysis.truth, analysis.rows("losses"), silent=analysis.silent) == []


def test_every_unclean_election_is_found_and_no_other_is_certain(analysis: Analysis) -> None:
    assert analysis.truth.unclean
    assert check.unclean(analysis.truth, analysis.rows("unclean")) == []


def test_every_controllership_is_found(analysis: Analysis) -> None:
    assert check.controllers(analysis.truth, analysis.rows("controllers")) == []


def test_partitions_that_moved_are_found(analysis: Analysis) -> None:
    assert check.flapping(analysis.truth, analysis.rows("flapping")) == []


def test_no_rule_was_broken(analysis: Analysis) -> None:
    assert analysis.rows("audit") == []


def test_parts_of_an_outage_add_up_to_it(analysis: Analysis) -> None:
    parts = ("detection_ms", "queue_ms", "election_ms", "send_ms", "apply_ms")
    for row in analysis.rows("outages"):
        known = [row[name] for name in parts]
        assert all(part is None or part >= 0 for part in known), row
        if None not in known:
            assert sum(known) == pytest.approx(row["duration_ms"], abs=len(parts)), row

"""Everything that happened is found, with bounds that hold, and nothing that did not."""

import pytest
from pyspark.sql import SparkSession

from tests.support.kafka_logs import check

from .incidents import KINDS, Asked, ask

pytestmark = pytest.mark.long


@pytest.fixture(scope="module", params=KINDS)
def asked(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Asked:
    return ask(spark, KINDS[request.param], tmp_path_factory.mktemp(request.param))


def test_every_line_is_read_and_understood(asked: Asked) -> None:
    assert asked.done.manifest.lines == asked.truth.lines
    assert asked.done.manifest.unparsed == 0, [each.samples for each in asked.done.files if each.samples]


def test_clock_offsets_match_the_truth(asked: Asked) -> None:
    assert check.skew(asked.truth, asked.rows("skew")) == []


def test_every_outage_is_found_within_its_bounds_and_none_is_invented(asked: Asked) -> None:
    assert check.outages(asked.truth, asked.rows("outages"), asked.clock) == []


def test_every_lost_record_is_counted_and_none_is_invented(asked: Asked) -> None:
    assert check.losses(asked.truth, asked.rows("losses"), silent=asked.silent) == []


def test_every_unclean_election_is_found_and_no_other_is_certain(asked: Asked) -> None:
    assert asked.truth.unclean
    assert check.unclean(asked.truth, asked.rows("unclean")) == []


def test_every_controllership_is_found(asked: Asked) -> None:
    assert check.controllers(asked.truth, asked.rows("controllers")) == []


def test_partitions_that_moved_are_found(asked: Asked) -> None:
    assert check.flapping(asked.truth, asked.rows("flapping")) == []


def test_no_rule_was_broken(asked: Asked) -> None:
    assert asked.rows("audit") == []


def test_parts_of_an_outage_add_up_to_it(asked: Asked) -> None:
    parts = ("detection_ms", "queue_ms", "election_ms", "send_ms", "apply_ms")
    for row in asked.rows("outages"):
        known = [row[name] for name in parts]
        assert all(part is None or part >= 0 for part in known), row
        if None not in known:
            assert sum(known) == pytest.approx(row["duration_ms"], abs=len(parts)), row

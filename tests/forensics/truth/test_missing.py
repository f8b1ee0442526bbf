"""With some logs missing, less is found, but no bound is wrong and nothing is invented."""

import pytest
from pyspark.sql import SparkSession

from tests.support.kafka_logs import check

from .incidents import KINDS, Analysis, analyse

pytestmark = pytest.mark.long

# Kind of cluster and the missing logs.
MISSING = {
    "two brokers": ("info", ("broker-2", "broker-4")),
    "no controller.log, no server.log": ("info", ("*/controller.log*", "*/server.log*")),
    "a broker, at TRACE": ("trace", ("broker-1", "*/server.log*")),
}


@pytest.fixture(scope="module", params=MISSING)
def analysis(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Analysis:
    kind, without = MISSING[request.param]
    return analyse(spark, KINDS[kind], tmp_path_factory.mktemp("missing"), without=without)


def test_clocks_are_within_their_bounds(analysis: Analysis) -> None:
    assert check.skew(analysis.truth, analysis.rows("skew")) == []


def test_no_outage_is_invented(analysis: Analysis) -> None:
    assert check.outages(analysis.truth, analysis.rows("outages"), analysis.clock, complete=False) == []


def test_no_loss_is_invented(analysis: Analysis) -> None:
    certain = [row for row in analysis.rows("losses") if row["certain"]]
    assert check.losses(analysis.truth, certain, complete=False) == []


def test_every_certain_unclean_election_is_real(analysis: Analysis) -> None:
    assert check.unclean(analysis.truth, analysis.rows("unclean"), complete=False) == []


def test_no_rule_was_broken(analysis: Analysis) -> None:
    assert analysis.rows("audit") == []

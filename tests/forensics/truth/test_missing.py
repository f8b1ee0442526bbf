"""With some of the logs taken away less is found, but no bound is wrong and nothing is invented."""

import pytest
from pyspark.sql import SparkSession

from tests.support.kafka_logs import check

from .incidents import KINDS, Asked, ask

pytestmark = pytest.mark.long

# What is taken away of which cluster.
MISSING = {
    "two brokers": ("info", ("broker-2", "broker-4")),
    "no controller.log, no server.log": ("info", ("*/controller.log*", "*/server.log*")),
    "a broker, at TRACE": ("trace", ("broker-1", "*/server.log*")),
}


@pytest.fixture(scope="module", params=MISSING)
def asked(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Asked:
    kind, without = MISSING[request.param]
    return ask(spark, KINDS[kind], tmp_path_factory.mktemp("missing"), without=without)


def test_clocks_are_within_their_bounds(asked: Asked) -> None:
    assert check.skew(asked.truth, asked.rows("skew")) == []


def test_no_outage_is_invented(asked: Asked) -> None:
    assert check.outages(asked.truth, asked.rows("outages"), asked.clock, complete=False) == []


def test_no_loss_is_invented(asked: Asked) -> None:
    certain = [row for row in asked.rows("losses") if row["certain"]]
    assert check.losses(asked.truth, certain, complete=False) == []


def test_no_unclean_election_is_certain_that_was_none(asked: Asked) -> None:
    assert check.unclean(asked.truth, asked.rows("unclean"), complete=False) == []


def test_no_rule_was_broken(asked: Asked) -> None:
    assert asked.rows("audit") == []

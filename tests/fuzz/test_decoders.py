"""Seeds of all targets are valid, and a short run finds nothing."""

import pytest

from . import campaign
from .decoders import targets
from .target import Target, check

WITH_PASSWORD = {
    "SCRAM server, last", "SCRAM client, last", "DIGEST-MD5, last", "ZooKeeper tokens", "logins of brokers",
}  # fmt: skip


def test_short_run_finds_nothing() -> None:
    figures = campaign.fuzz(list(campaign.set_up().values()), 6_000, seed=1)

    assert sum(row.accepted for row in figures.values()) > 600
    assert figures["request Metadata"].accepted > 5


@pytest.mark.parametrize(
    "target",
    # The others are valid only with the password.
    [target for target in targets() if target.name not in WITH_PASSWORD],
    ids=lambda target: target.name,
)
def test_seeds_are_valid(target: Target) -> None:
    """Changes of an invalid input would test little else than its first bytes."""
    accepted = [check(target, seed) for seed in target.seeds]

    assert any(accepted)

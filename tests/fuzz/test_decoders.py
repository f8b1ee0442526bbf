"""Decoders raise only documented errors: a short run of the fuzzer, and the fuzzer itself."""

import itertools

import pytest

from .decoders import Violation, check, fuzz, targets
from .target import Target

WITH_PASSWORD = {"SCRAM server, last", "SCRAM client, last", "DIGEST-MD5, last", "ZooKeeper tokens"}


def test_short_run_finds_nothing() -> None:
    accepted = fuzz(4_000, seed=1)
    assert sum(accepted.values()) > 100


@pytest.mark.parametrize(
    "target",
    # The others are valid only with the password.
    [target for target in targets() if target.name not in WITH_PASSWORD],
    ids=lambda target: target.name,
)
def test_seeds_are_valid(target: Target) -> None:
    """Changes of an invalid input would test little else than its first bytes."""
    assert any(check(target, seed) for seed in target.seeds)


def test_undocumented_exception_is_found() -> None:
    with pytest.raises(IndexError):
        check(Target("planted", lambda data: data[1_000], (ValueError,), [b""]), b"")


def test_outcome_that_changes_is_found() -> None:
    calls = itertools.count()
    with pytest.raises(Violation, match="two outcomes"):
        check(Target("planted", lambda data: next(calls), (), [b""]), b"")

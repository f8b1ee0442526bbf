"""Seeds of all targets are valid, and a short run finds nothing."""

import pytest

from kactl.forensics.event_types import Kind

from . import campaign, corpus
from .decoders import targets
from .interfaces import LAYOUTS_OF_LINES, lines_with_layout, rows_of_log
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


@pytest.mark.parametrize("layout", LAYOUTS_OF_LINES)
def test_seeds_have_the_layout_that_is_fuzzed(layout: str) -> None:
    """A log is read without errors, whatever is in it."""
    for lines in lines_with_layout(LAYOUTS_OF_LINES[layout]):
        assert sum(rows_of_log(lines, layout=layout, kind=Kind.SERVER)) == lines.count(b"\n")


def test_recorded_inputs_are_small_and_known() -> None:
    """S-84: at most 5 MB, and each file is of a target."""
    names = {target.name.replace("/", " ") for target in targets()}
    files = list(corpus.FOLDER.iterdir())

    assert {path.stem for path in files} <= names
    assert sum(path.stat().st_size for path in files) < 5_000_000
    assert all(corpus.recorded(path.stem) for path in files)

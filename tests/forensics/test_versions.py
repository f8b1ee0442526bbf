"""Versions of Kafka, inferred from formats and levels."""

import pytest

from kactl.forensics.overview import guess_version
from kactl.forensics.text.dispatch import FORMATS
from kactl.forensics.text.format import FIRST, LAST

GUESSED = {
    "1.0": ["P1@TRACE", "P2a@TRACE", "R1@TRACE", "S6-1.0@TRACE"],
    "1.1-2.5": ["P1@TRACE", "P2b@TRACE", "R1@TRACE"],
    "2.6-3.1": ["P1@INFO", "P2b@INFO", "B4@INFO"],
    "2.7-3.1": ["P2b@INFO", "B3@INFO"],
    "3.2": ["P2b-3.2@INFO", "B4@INFO"],
    "3.3-3.4": ["P2b-3.3@INFO"],
    "3.5-3.9": ["P2b-3.5@INFO", "S2@INFO"],
    "0.8-0.11": ["P0a@TRACE", "B0b@TRACE"],
    "0.8": ["R0a@TRACE", "B0f@WARN"],
    "0.8-0.9": ["P0a@TRACE", "S7d-0.8@WARN"],
    "0.9-0.11": ["B0a-0.9@TRACE", "C2a-0.8@INFO"],
    "0.11": ["I1-0.8@INFO", "B6-0.11@INFO"],
    "2.6-3.9": ["P1@INFO", "R1@TRACE"],  # at TRACE by configuration; P1 is always at INFO
    "2.8-3.1": ["K1-2.8@WARN", "K15d@INFO"],
    "3.0-3.5": ["K1@INFO", "K15d@INFO", "K3@INFO"],
    "3.3-3.5": ["K2@INFO", "K10b-2.8@WARN"],
    "3.5+": ["K18a@INFO", "K10b@INFO"],
    "4.0+": ["K20c@INFO", "K20d@INFO"],  # states before an election, which earlier voters do not have
    "2.6-3.2": ["B4@INFO", "B5@INFO"],
    "3.3+": ["B4-3.3@INFO"],  # also written by brokers with KRaft
    "2.7-3.2": ["C11-2.7@DEBUG", "C3@INFO"],
    "2.8-3.9": ["C8a-2.8@INFO", "C3@INFO"],
    "2.4-3.9": ["S1-2.4@TRACE"],
    "1.0-2.3": ["S1@TRACE", "B9a@TRACE"],
    "2.4-2.5": ["S3-2.4@TRACE", "B9a-2.4@TRACE"],
    "0.8-3.9": ["C3@INFO", "C12e@INFO"],
    "0.10-3.9": ["S7d@WARN"],
    "2.8-4.0": ["K7@INFO", "K3@INFO"],
    "4.1+": ["K7-4.1@INFO", "B4-3.3@INFO"],
    "mixed": ["P2b@INFO", "P2b-3.5@INFO"],  # a file over an upgrade
}


@pytest.mark.parametrize(("expected", "seen"), GUESSED.items(), ids=GUESSED)
def test_version_range_is_that_of_all_formats(expected: str, seen: list[str]) -> None:
    assert guess_version(seen) == expected
    assert guess_version(reversed(seen)) == expected


@pytest.mark.parametrize("seen", [[], ["PARTITION_RECORD@"], ["INFO"]])
def test_no_formats_give_no_version(seen: list[str]) -> None:
    assert guess_version(seen) is None


def test_every_format_has_versions() -> None:
    for each in FORMATS:
        assert FIRST <= each.since <= each.until <= LAST, each.id
        assert each.raised is None or each.since < each.raised <= each.until

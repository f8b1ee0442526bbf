"""Order of fencing tokens."""

import pytest

from kactl.participant.leases.token import FencingToken

ID, OTHER_ID = b"a" * 16, b"b" * 16


def test_tokens_are_ordered_by_controller_epoch_then_leader_epoch() -> None:
    tokens = [FencingToken(*epochs, ID) for epochs in [(1, 9), (2, 0), (2, 1), (10, 0)]]
    mixed = [tokens[2], tokens[0], tokens[3], tokens[1]]

    assert sorted(mixed) == tokens
    assert sorted(mixed, key=FencingToken.as_int) == tokens
    assert all(not token < token and token <= token for token in tokens)
    assert [str(token) for token in tokens] == ["1.9", "2.0", "2.1", "10.0"]


def test_tokens_of_different_topics_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="cannot be compared"):
        assert FencingToken(1, 1, ID) < FencingToken(1, 2, OTHER_ID)
    assert FencingToken(1, 1, ID) != FencingToken(1, 1, OTHER_ID)


def test_number_of_the_largest_token_fits_into_63_bits() -> None:
    assert FencingToken(2**31 - 1, 2**31 - 1, ID).as_int() < 2**63

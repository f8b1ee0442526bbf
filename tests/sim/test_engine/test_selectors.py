"""Selectors that stay with their target while others begin and end to exist."""

from tests.sim.engine.selectors import _nth

NAMES = [f"t{topic}-{partition}" for topic in range(5) for partition in range(4)]


def test_target_by_name_stays_while_it_exists() -> None:
    for number in range(50):
        chosen = _nth(NAMES, f"~{number}")
        assert chosen is not None

        assert _nth([name for name in NAMES if name.startswith(chosen[:2])], f"~{number}") == chosen
        assert _nth(["a-0", *NAMES, "z-0"], f"~{number}") in (chosen, "a-0", "z-0")


def test_targets_by_name_are_spread() -> None:
    assert len({_nth(NAMES, f"~{number}") for number in range(200)}) == len(NAMES)


def test_target_by_position_and_none_of_none() -> None:
    assert _nth(NAMES, "#21") == NAMES[1]
    assert _nth([], "#3") is None
    assert _nth([], "~3") is None

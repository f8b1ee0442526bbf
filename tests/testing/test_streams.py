"""Random streams by name."""

from kactl.testing import Streams


def draws(streams: Streams, name: str) -> list[float]:
    return [streams[name].random() for _ in range(5)]


def test_draws_of_one_stream_do_not_change_another() -> None:
    one, other = Streams(7), Streams(7)
    draws(other, "schedule")
    draws(other, "link:1-2")

    assert draws(one, "store:1") == draws(other, "store:1")


def test_streams_differ_by_name_and_by_seed() -> None:
    values = {tuple(draws(Streams(seed), name)) for seed in (1, 2, "1") for name in ("a", "b")}

    # Seeds 1 and "1" are the same: a seed from a command line is text.
    assert len(values) == 4

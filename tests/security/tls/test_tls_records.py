"""Ends of TLS records, wherever the received bytes are cut."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from kactl.security.tls.tls_records import TlsRecords


def _record(size: int) -> bytes:
    return b"\x17\x03\x03" + size.to_bytes(2, "big") + b"x" * size


@given(
    sizes=st.lists(st.sampled_from([0, 1, 22, 300]), max_size=12),
    cuts=st.lists(st.integers(1, 40), min_size=1),
    ends_max=st.integers(1, 4),
)
def test_each_record_ends_once(sizes: list[int], cuts: list[int], ends_max: int) -> None:
    records, ends = TlsRecords(), []
    content = b"".join(map(_record, sizes))
    at = 0
    for size in itertools.cycle(cuts):
        if at == len(content):
            break
        taken, ended = records.take(content[at : at + size], ends_max)
        assert taken or not size
        assert ended <= ends_max
        # What is left contains no end that could have been taken.
        assert taken == len(content[at : at + size]) or ended == ends_max
        at += taken
        ends += [at] * ended

    known = list(itertools.accumulate(len(_record(size)) for size in sizes))
    assert len(ends) == len(known)
    # All that ended in one call are at its end, or before it.
    assert all(found >= end for found, end in zip(ends, known, strict=True))


def test_bytes_up_to_the_last_allowed_end_are_taken() -> None:
    content = b"".join(map(_record, (3, 0, 5, 7)))
    records = TlsRecords()

    assert records.take(content, 3) == (len(content) - 12, 3)
    assert records.take(content[-12:-1], 3) == (11, 0)
    assert records.take(content[-1:], 3) == (1, 1)
    assert records.take(b"", 3) == (0, 0)

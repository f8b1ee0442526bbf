"""The request that deletes many partitions, compared with kazoo's equivalent."""

import struct

import numpy as np
import pytest
from kazoo.exceptions import BadVersionError, NoNodeError, NotEmptyError
from kazoo.protocol.serialization import CheckVersion, Delete, Transaction

from kactl.decide.state.rows import Ints
from kactl.stores.zookeeper.delete_multi import PartitionsDeletion, packed

HEADER = struct.Struct("!i?i")
END = HEADER.pack(-1, True, -1)
FENCE = "/kafka/controller_epoch"


def partition_numbers(*partitions: int) -> Ints:
    return np.array(partitions, np.int32)


def some() -> PartitionsDeletion:
    return PartitionsDeletion(
        FENCE, 7, [("/kafka/brokers/topics/a/partitions", partition_numbers(0, 12)), ("/b/ä", partition_numbers(3))]
    )


def test_request_bytes_equal_kazoos() -> None:
    nodes = [f"/kafka/brokers/topics/a/partitions/{at}" for at in (0, 12)] + ["/b/ä/3"]
    theirs = Transaction(
        [CheckVersion(FENCE, 7), *(Delete(path, -1) for node in nodes for path in (f"{node}/state", node))]
    )

    ours = some()

    assert ours.serialize() == theirs.serialize()
    assert ours.type == theirs.type
    assert len(ours) == 6


def delete_response(*errors: int) -> bytes:
    """Returns a server's response to a failed multi: an error for each operation, 0 if it was rolled back."""
    return b"".join(HEADER.pack(-1, False, error) + struct.pack("!i", error) for error in errors) + END


@pytest.mark.parametrize("offset", [0, 16])
def test_successful_response_has_no_failures(offset: int) -> None:
    done = HEADER.pack(13, False, 0) + HEADER.pack(2, False, 0) * 6 + END

    assert some().deserialize(bytes(offset) + done, offset) == [0] * 7


@pytest.mark.parametrize(
    "errors",
    [
        [BadVersionError.code, -2, -2, -2, -2, -2, -2],
        [0, 0, 0, NotEmptyError.code, -2, -2, -2],
        [0, NoNodeError.code, -2, -2, -2, -2, -2],
    ],
)
def test_rejected_response_names_the_operation(errors: list[int]) -> None:
    assert some().deserialize(bytes(16) + delete_response(*errors), 16) == errors


@pytest.mark.parametrize("cut", [1, 9, 20, 60])
def test_truncated_response_is_rejected(cut: int) -> None:
    done = HEADER.pack(13, False, 0) + HEADER.pack(2, False, 0) * 6 + END

    with pytest.raises(struct.error):
        some().deserialize(done[:-cut], 0)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_topics_are_packed_in_order_and_each_partition_once(size: int) -> None:
    topics = {
        "a": partition_numbers(0, 1, 2, 3, 4),
        "none": partition_numbers(),
        "b": partition_numbers(9),
        "c": partition_numbers(*range(7)),
    }

    pieces = list(packed(topics, size))

    sizes = [sum(len(part) for _, part in piece) for piece in pieces]
    assert sizes[:-1] == [size] * (len(sizes) - 1)
    assert 0 < sizes[-1] <= size
    found = [(topic, at) for piece in pieces for topic, part in piece for at in part.tolist()]
    assert found == [(topic, at) for topic, held in topics.items() for at in held.tolist()]


def test_empty_input_is_packed_empty() -> None:
    assert list(packed({"a": partition_numbers()}, 5)) == []

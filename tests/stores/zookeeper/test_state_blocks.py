"""Requests and responses of many states, compared with ones that are encoded and decoded one by one."""

import struct
from typing import Final

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kazoo.exceptions import BadVersionError, NoNodeError, RolledBackError
from kazoo.protocol.states import ZnodeStat

from kactl.model import NO_BROKER, NO_VERSION, Fence, TopicPartition
from kactl.stores.base import Found, Leaderships, Names, Write
from kactl.stores.formats import records, states
from kactl.stores.zookeeper import layout, request, state_reads, state_writes
from kactl.stores.zookeeper.request import MultiRead
from tests.support.store_clients import new_write

NAMES: Final = st.builds(
    TopicPartition,
    st.sampled_from(["a", "orders", "x" * 249]),
    st.one_of(st.integers(0, 12), st.sampled_from([99, 100, 4_095, 4_096, 2**31 - 1])),
)
GOOD: Final = b'{"controller_epoch":3,"leader":1,"version":1,"leader_epoch":7,"isr":[1,2]}'
HEAD: Final = b'{"controller_epoch":3,"leader":1,'
TAIL: Final = b'"version":1,"leader_epoch":7,"isr":[1,2]}'
# Two fragments that begin and end like objects and form one object together.
OPEN, CLOSE = HEAD + b'"a":"}', b'{",' + TAIL
# Whole nodes of many kinds, and fragments that together, but not alone, could form a node.
PIECES: Final = (
    GOOD,
    b'{"isr":[],"leader":-1,"leader_epoch":0,"controller_epoch":-1,"leader_recovery_state":1}',
    b'{"controller_epoch":3,"leader":2,"version":1,"leader_epoch":7,"isr":[5,4,5,6]}',
    b" " + GOOD + b"\n",
    GOOD.replace(b",", b",\n"),
    GOOD.replace(b"}", b',"more":{"a":[1]}}'),
    GOOD.replace(b"}", b',"more":"}\\n{"}'),
    GOOD.replace(b"}", ',"é":"é"}'.encode()),
    GOOD.replace(b"}", b',"\xff":1}'),
    HEAD,
    TAIL,
    HEAD[:-1],
    HEAD[:-1] + b"}",
    OPEN,
    CLOSE,
    GOOD + b"\n" + GOOD,
    GOOD + b"," + GOOD,
    GOOD.replace(b"7", b"2147483648"),
    GOOD.replace(b'"leader":1', b'"leader":-2'),
    GOOD.replace(b"[1,2]", b"[1,-1]"),
    b"{}",
    b"}",
    b"{",
    b"[",
    b"]",
    b",",
    b"\n",
    b"",
    b"null",
)
NO_NODE, NO_AUTH = -101, -102


def stat(version: int, size: int) -> bytes:
    return struct.pack("!qqqqiiiqiiq", 1, 2, 3, 4, version, 0, 0, 0, size, 0, 5)


def multi_response(nodes: list[bytes | int | None]) -> bytes:
    """Returns a server's response: the data of each node, None for null, or an error."""
    parts = [b"what stands before it"]
    for at, node in enumerate(nodes):
        if isinstance(node, int):
            parts.append(struct.pack("!i?ii", -1, False, node, node))
        elif node is None:
            parts.append(struct.pack("!i?ii", 4, False, 0, -1) + stat(at, 0))
        else:
            parts.append(struct.pack("!i?ii", 4, False, 0, len(node)) + node + stat(at, len(node)))
    return b"".join([*parts, struct.pack("!i?i", -1, True, -1)])


def taken_apart(answer: bytes) -> states.Block:
    return state_reads.ReadStates.deserialize(answer, len(b"what stands before it"))


def one_by_one(nodes: list[bytes | int | None]) -> tuple[Leaderships, list[int]]:
    """Returns the result of the strict decoder for each node by itself, and the indexes of malformed nodes."""
    read, refused, status = [], [], []
    for at, node in enumerate(nodes):
        found, held = Found.FOUND, records.StateNode(-1, -1, -1, [])
        if isinstance(node, int):
            found = Found.MISSING if node == NO_NODE else Found.FAILED
        else:
            try:
                held = records.decode_state(node)
            except records.Malformed:
                found = Found.UNREADABLE
                refused.append(at)
        read.append(held)
        status.append(found)
    members = [list(dict.fromkeys(held.isr)) for held in read]
    width = max(map(len, members), default=0)
    isr = [row + [NO_BROKER] * (width - len(row)) for row in members]
    return Leaderships(
        status=np.array(status, np.uint8),
        leader=np.array([held.leader for held in read], np.int32),
        leader_epoch=np.array([held.leader_epoch for held in read], np.int32),
        isr=np.array(isr, np.int32).reshape(len(read), width).T,
        partition_epoch=np.array(
            [at if found == Found.FOUND else NO_VERSION for at, found in enumerate(status)], np.int32
        ),
        controller_epoch=np.array([held.controller_epoch for held in read], np.int32),
        recovering=np.array([held.leader_recovery_state == 1 for held in read], np.bool_),
    ), refused


def equal_leaderships(one: Leaderships, other: Leaderships) -> bool:
    return len(one) == len(other) and all(
        one.status[at] == other.status[at]
        and one.one(at) == other.one(at)
        and one.partition_epoch[at] == other.partition_epoch[at]
        and one.leader_epoch[at] == other.leader_epoch[at]
        for at in range(len(one))
    )


@given(st.lists(st.one_of(st.sampled_from(PIECES), st.sampled_from([None, NO_NODE, NO_AUTH])), max_size=12))
@example([OPEN, CLOSE])
@example([OPEN, CLOSE, GOOD + b"," + GOOD])
@example([OPEN, CLOSE, GOOD + b"\n" + GOOD])
@example([HEAD[:-1], TAIL, GOOD + b"\n" + GOOD])
@example([GOOD + b"\n" + GOOD, HEAD[:-1], TAIL])
def test_block_equals_decoding_each_node_alone(nodes: list[bytes | int | None]) -> None:
    expected, refused = one_by_one(nodes)

    block = taken_apart(multi_response(nodes))

    assert equal_leaderships(block.states, expected)
    assert [at for at, _ in block.unreadable] == refused


def test_block_of_valid_nodes_is_decoded_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "decode_state", None)

    block = taken_apart(multi_response([GOOD] * 1_000))

    assert block.states.found.all()
    assert block.states.partition_epoch.tolist() == list(range(1_000))
    assert block.states.isr[:, 999].tolist() == [1, 2]


@pytest.mark.parametrize("at", range(0, 90, 7))
def test_truncated_block_response_is_an_error(at: int) -> None:
    whole = multi_response([GOOD])

    with pytest.raises((ValueError, struct.error, IndexError)):
        taken_apart(whole[: len(b"what stands before it") + at])


def test_single_reads_form_the_same_block() -> None:
    nodes: list[bytes | int | None] = [GOOD, NO_NODE, b"{", None, NO_AUTH, GOOD]
    singly = [
        request.error_of(node) if isinstance(node, int) else (node, ZnodeStat(1, 2, 3, 4, at, 0, 0, 0, 0, 0, 5))
        for at, node in enumerate(nodes)
    ]

    block = state_reads.block(singly)

    assert equal_leaderships(block.states, taken_apart(multi_response(nodes)).states)
    assert [at for at, _ in block.unreadable] == [2, 3]


def test_blocks_of_all_sizes_are_joined() -> None:
    wide = GOOD.replace(b"[1,2]", b"[1,2,3,4]")
    pieces: list[list[bytes | int | None]] = [[GOOD], [wide, NO_NODE], [], [b"{"]]

    whole = states.join([taken_apart(multi_response(piece)).states for piece in pieces])

    singly = [one_by_one(piece)[0] for piece in pieces]
    assert [whole.one(at) for at in range(len(whole))] == [one.one(at) for one in singly for at in range(len(one))]
    assert whole.status.tolist() == [Found.FOUND, Found.FOUND, Found.MISSING, Found.UNREADABLE]
    assert len(states.join([])) == 0


@given(st.lists(NAMES, max_size=30), st.sampled_from(["", "/kafka", "/a/b"]))
def test_request_equals_a_plain_multi_read(names: list[TopicPartition], chroot: str) -> None:
    paths = tuple(chroot + layout.state(name.topic, name.partition) for name in names)

    asked = state_reads.requests(Names.of(names), chroot)

    assert b"".join(one.serialize() for one in asked) == (MultiRead(paths).serialize() if names else b"")


@st.composite
def writes(draw: st.DrawFn) -> Write:
    names = draw(st.lists(NAMES, max_size=20, unique=True))
    numbers = st.integers(0, 2**31 - 1)

    def column(values: st.SearchStrategy[int]) -> list[int]:
        return draw(st.lists(values, min_size=len(names), max_size=len(names)))

    isr = draw(st.lists(st.lists(numbers, max_size=4), min_size=len(names), max_size=len(names)))
    return new_write(
        names,
        leader=column(st.integers(-1, 5)),
        leader_epoch=column(numbers),
        isr=isr or (),
        recovering=[bool(value) for value in column(st.integers(0, 1))],
        expected=column(numbers),
    )


@given(writes(), st.integers(1, 7), st.sampled_from(["", "/kafka"]))
def test_request_equals_a_plain_multi_write(wanted: Write, size: int, chroot: str) -> None:
    fence, every = Fence(9, 4), np.arange(len(wanted))
    rows = state_writes.Rows(wanted, every, epoch=9, chroot=chroot)

    multis = [one.serialize() for one in state_writes.requests(rows, fence, chroot=chroot, size=size)]

    plain = []
    for begin in range(0, len(wanted), size):
        operations = [request.check(chroot + layout.CONTROLLER_EPOCH, 4)]
        for at, name in list(enumerate(wanted.names))[begin : begin + size]:
            data = records.encode_state(
                int(wanted.leader[at]),
                leader_epoch=int(wanted.leader_epoch[at]),
                isr=[broker for broker in wanted.isr[:, at].tolist() if broker != NO_BROKER],
                controller_epoch=9,
                recovering=bool(wanted.recovering[at]),
            )
            path = chroot + layout.state(name.topic, name.partition)
            operations.append(request.put(path, data, int(wanted.expected[at])))
        plain.append(bytes(request.multi(operations).serialize()))
    assert multis == plain


def test_response_is_read_only_for_rejections() -> None:
    done = struct.pack("!i?i", 13, False, 0) + struct.pack("!i?i", 5, False, 0) + stat(1, 10)
    refused = b"".join(struct.pack("!i?ii", -1, False, code, code) for code in (0, -103, -2))
    end = struct.pack("!i?i", -1, True, -1)

    assert state_writes.PutStates.deserialize(b"xx" + done + end, 2) == []
    results = state_writes.PutStates.deserialize(b"xx" + refused + end, 2)
    assert [type(result) for result in results] == [RolledBackError, BadVersionError, request.error_of(-2).__class__]
    assert not isinstance(results[1], NoNodeError)

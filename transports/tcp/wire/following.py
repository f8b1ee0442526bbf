"""Messages between participants in MessagePack."""

from collections.abc import Callable
from typing import Annotated, Any, Final

import msgspec

from kactl.decide.messages.following import FollowerReports, FollowerReportsRequested
from kactl.decide.state.records import Names

from .columns import Buffer, Column, pieces, rows, values
from .control import TOPICS_MAX, array, check_topics, topic_pieces, topics_of

_encode: Final = msgspec.msgpack.Encoder().encode
_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
_Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_Names = Annotated[list[Annotated[str, msgspec.Meta(max_length=1_000)]], msgspec.Meta(max_length=TOPICS_MAX)]


class FollowerReportsHead(msgspec.Struct, frozen=True, array_like=True, tag="FollowerReports"):
    follower: _Int32
    broker_epoch: _Int64
    leader: _Int32
    generation: _Int64
    base: _Int64
    names: _Names
    ids: bytes
    topic: Column
    partition: Column
    leader_epoch: Column
    position: Column
    caught_up: Column

    def build(self) -> FollowerReports:
        topics, partition = topics_of(self.names, self.ids), rows(self.partition, "<i4")
        count = len(partition)
        topic = values(self.topic, count, "<i4")
        check_topics(topic, topics, ascending=False)
        return FollowerReports(
            self.follower,
            self.broker_epoch,
            self.leader,
            self.generation,
            self.base,
            Names(topics, topic, partition),
            values(self.leader_epoch, count, "<i4"),
            values(self.position, count, "<i8"),
            values(self.caught_up, count, "?"),
        )


class FollowerReportsRequestedHead(msgspec.Struct, frozen=True, array_like=True, tag="FollowerReportsRequested"):
    leader: _Int32
    follower: _Int32
    broker_epoch: _Int64
    generation: _Int64

    def build(self) -> FollowerReportsRequested:
        return FollowerReportsRequested(self.leader, self.follower, self.broker_epoch, self.generation)


def _reports(message: FollowerReports) -> list[Buffer]:
    own = (message.follower, message.broker_epoch, message.leader, message.generation, message.base)
    parts: list[Buffer] = [array(13), _encode("FollowerReports"), *(_encode(number) for number in own)]
    parts += topic_pieces(message.names.topics)
    parts += pieces(message.names.topic, "<i4") + pieces(message.names.partition, "<i4")
    return (
        parts + pieces(message.leader_epoch, "<i4") + pieces(message.position, "<i8") + pieces(message.caught_up, "?")
    )


def _requested(message: FollowerReportsRequested) -> list[Buffer]:
    own = (message.leader, message.follower, message.broker_epoch, message.generation)
    return [_encode(["FollowerReportsRequested", *own])]


ENCODERS: Final[dict[type, Callable[[Any], list[Buffer]]]] = {
    FollowerReports: _reports,
    FollowerReportsRequested: _requested,
}
HEADS: Final = (FollowerReportsHead, FollowerReportsRequestedHead)

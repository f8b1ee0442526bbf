"""Routes as a spectator returns them."""

import msgspec

from kactl.decide.messages.routes import Version
from kactl.model import Endpoint, TopicPartition


class Route(msgspec.Struct, frozen=True):
    """The leader of one partition, as far as a spectator knows.

    Attributes:
        leader: None if the partition has no leader.
        endpoint: an address of the leader; None if it has registered none, or is not registered any more.
        ready: the leader has reported that it acts as the leader, under a lease. Always False with `store=`.
    """

    partition: TopicPartition
    leader: int | None
    endpoint: Endpoint | None
    leader_epoch: int
    ready: bool
    in_sync: tuple[int, ...]


class RouteChange(msgspec.Struct, frozen=True):
    """The newest route of a partition that has changed; `route` is None if the partition was removed.

    Attributes:
        version: to resume after this change.
    """

    version: Version
    partition: TopicPartition
    route: Route | None


class RoutesReset(msgspec.Struct, frozen=True):
    """Changes before this one are not known: the whole table follows, as changes. Discard what is not in it.

    Attributes:
        version: of the table.
    """

    version: Version

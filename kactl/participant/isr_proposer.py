"""The way of brokers from protocol level 2.7 on: the leader proposes, and the controller writes (AlterPartition).

What is taken is kept as the answer says it. What is refused because the controller knows another version is left alone
until that is heard of: from an instruction, or from the metadata that the controller sends after each proposal. So it
is with a proposal that got no answer, which may have been taken.

Source: DefaultAlterPartitionManager, Partition.handleAlterPartitionError.
"""

from collections.abc import Callable, Sequence
from typing import Final

from kactl.errors import ErrorCode
from kactl.messages.broker import AlterPartitionRequested, IsrProposal, IsrResult
from kactl.model import ZERO_ID, Leadership, TopicPartition, TopicRef
from kactl.runtime.logs import logger

from .controller_client import ToController
from .hosted_replicas import Hosted, Role
from .isr_update import Brought, Wanted
from .metadata import MetadataCache
from .pause_gate import Pause

log = logger(__name__)

# As many partitions as a broker commonly leads: after it has taken over from another all of them may change at once.
PROPOSED_MAX: Final = 10_000
# Of the request: the last one that names topics, and the one that names their ids.
_BY_NAME: Final = 1
_BY_ID: Final = 3
# The leadership is another than we know, or cannot be this: the same proposal would always be refused.
_FINAL: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
    }
)
# A member is not registered, registered anew, or shutting down; the second code is that of versions by name.
_INELIGIBLE: Final = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})


class IsrProposer:
    """See the module, and `Way`.

    Args:
        epoch: under which the broker is registered, at each call.
        epoch_of: the same of another broker, as far as it is known here; NO_EPOCH if it is not. The keeper asks
            followers and calls `bring` without a pause, so that it is the registration that was found to follow.
    """

    limit = PROPOSED_MAX

    def __init__(
        self,
        broker: int,
        hosted: Hosted,
        metadata: MetadataCache,
        *,
        epoch: Callable[[], int],
        epoch_of: Callable[[int], int],
        controller: ToController,
        pause: Pause,
    ) -> None:
        self._epoch_of = epoch_of
        self._broker = broker
        self._hosted = hosted
        self._metadata = metadata
        self._epoch = epoch
        self._controller = controller
        self._pause = pause
        self._behind: set[TopicPartition] = set()  # a proposal was made, and not taken as far as we know

    def catch_up(self) -> None:
        """See `Way`."""
        for name in list(self._behind):
            known, told = self._hosted.view(name), self._metadata.partition(name)
            if known is None or known.role is not Role.LEADER:
                self._behind.discard(name)
            elif told is None or (told.leader, told.leader_epoch) != (self._broker, known.leader_epoch):
                continue  # it speaks of another leadership, an earlier or a later one
            elif told.partition_epoch > known.partition_epoch:
                self._behind.discard(name)
                self._hosted.keep_isr(
                    name,
                    Leadership(
                        told.leader,
                        told.leader_epoch,
                        told.isr,
                        told.partition_epoch,
                        told.controller_epoch,
                        known.recovering,
                    ),
                )

    async def bring(self, wanted: Sequence[Wanted]) -> Brought:
        """See `Way`."""
        if not wanted:
            return Brought()
        proposals = tuple(self._proposal(name, state) for name, state in wanted)
        # Whatever becomes of it, and even if nobody says so: the metadata will.
        self._behind.update(name for name, _ in wanted)
        by_id = all(proposal.topic.id != ZERO_ID for proposal in proposals)
        answer: list[IsrResult] = await self._controller.ask(
            AlterPartitionRequested(self._broker, self._epoch(), proposals, _BY_ID if by_id else _BY_NAME)
        )
        await self._pause.over()
        refused: list[Wanted] = []
        later: list[Wanted] = []
        ineligible: list[Wanted] = []
        for (name, state), result in zip(wanted, answer, strict=True):
            if result.leadership is not None:
                self._hosted.keep_isr(name, result.leadership)
                self._behind.discard(name)
                continue
            of_its_kind = refused if result.error in _FINAL else ineligible if result.error in _INELIGIBLE else later
            of_its_kind.append((name, state))
        _explain(self._broker, answer)
        return Brought(refused, later, ineligible)

    def _proposal(self, name: TopicPartition, state: Leadership) -> IsrProposal:
        """With the topic's name and its id, where it has one; which of them counts the version says."""
        row = self._hosted.index.find_one(name)
        # As a column an id loses the zeros at its end.
        topic_id = bytes(self._hosted.topic_id[row]).ljust(len(ZERO_ID), b"\0")
        return IsrProposal(
            TopicRef(name.topic, topic_id),
            name.partition,
            state.leader_epoch,
            state.isr,
            state.partition_epoch,
            state.recovering,
            tuple(self._epoch() if member == self._broker else self._epoch_of(member) for member in state.isr),
        )


def _explain(broker: int, answer: Sequence[IsrResult]) -> None:
    """Say what was refused, the first of it by name."""
    refused = [result for result in answer if result.error is not ErrorCode.NONE]
    if refused:
        log.info(
            "%d ISRs that broker %d proposed were refused; the first: %s-%d, %s",
            len(refused), broker, refused[0].topic.name, refused[0].partition, refused[0].error.name,
        )  # fmt: skip

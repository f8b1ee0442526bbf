"""ISR updates from protocol level 2.7 on: the leader proposes them, and the controller writes them (AlterPartition).

An accepted proposal is applied as the response states it. If the controller rejects a proposal because it knows another
version, the leader waits until it receives that version: in a LeaderAndIsr, or in the metadata that the controller
sends after each proposal. A proposal without a response is treated alike, because it may have been accepted.

Source: DefaultAlterPartitionManager, Partition.handleAlterPartitionError.
"""

from collections.abc import Callable, Sequence
from typing import Final

from kactl.decide.messages.broker import AlterPartitionReceived, IsrProposal, IsrResult
from kactl.model import ZERO_ID, Leadership, TopicPartition, TopicRef
from kactl.model.errors import ErrorCode
from kactl.runtime.logs import logger

from .controller_client import ControllerClient
from .hosted_replicas import HostedReplicas, Role
from .isr_update import IsrUpdate, IsrUpdateResult
from .metadata import MetadataCache
from .pause_gate import PauseGate

log = logger(__name__)

# After the failure of a peer the ISRs of all partitions may change at once. A controller accepts 512 KiB in a request.
PROPOSED_MAX: Final = 500
# Versions of the request: the last one that contains topic names, and the one that contains topic ids.
_BY_NAME: Final = 1
_BY_ID: Final = 3
# The leadership differs from the one that this leader knows, or the proposal is invalid: it would always be rejected.
_FINAL: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
    }
)
# A member is not registered, has registered again, or is shutting down. Versions with topic names use the second code.
_INELIGIBLE: Final = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})


class IsrProposer:
    """Commits the ISR updates of a leader by AlterPartition requests to the controller.

    Args:
        epoch: returns the epoch of this broker's registration.
        epoch_of: returns the epoch of the registration that another broker's reports name, NO_EPOCH if it is not
            known. `IsrKeeper` reads the reports and calls `submit` without a pause, so that both see the same ones.

    Attributes:
        limit: the number of updates that one call accepts.
    """

    limit = PROPOSED_MAX

    def __init__(
        self,
        broker: int,
        hosted: HostedReplicas,
        metadata: MetadataCache,
        *,
        epoch: Callable[[], int],
        epoch_of: Callable[[int], int],
        controller: ControllerClient,
        pause: PauseGate,
    ) -> None:
        self._epoch_of = epoch_of
        self._broker = broker
        self._hosted = hosted
        self._metadata = metadata
        self._epoch = epoch
        self._controller = controller
        self._pause = pause
        self._unresolved: set[TopicPartition] = set()  # proposed, and not known to be accepted

    def reconcile(self) -> None:
        """Apply newer versions that have become known of partitions with a rejected update."""
        for name in list(self._unresolved):
            replica, cached = self._hosted.view(name), self._metadata.partition(name)
            if replica is None or replica.role is not Role.LEADER:
                self._unresolved.discard(name)
            elif cached is None or (cached.leader, cached.leader_epoch) != (self._broker, replica.leader_epoch):
                continue  # the metadata describe an earlier or a later leadership
            elif cached.partition_epoch > replica.partition_epoch:
                self._unresolved.discard(name)
                self._hosted.apply_isr(
                    name,
                    Leadership(
                        cached.leader,
                        cached.leader_epoch,
                        cached.isr,
                        cached.partition_epoch,
                        cached.controller_epoch,
                        replica.recovering,
                    ),
                )

    async def submit(self, updates: Sequence[IsrUpdate]) -> IsrUpdateResult:
        """Submit some updates, at most one for each partition, and finish the work that an earlier call has left.

        Raises:
            KactlError: some of the updates may have been committed. Compare with the current state after a pause.
        """
        if not updates:
            return IsrUpdateResult()
        proposals = tuple(self._proposal(name, state) for name, state in updates)
        # If no response arrives, the metadata will show the outcome.
        self._unresolved.update(name for name, _ in updates)
        by_id = all(proposal.topic.id != ZERO_ID for proposal in proposals)
        results: list[IsrResult] = await self._controller.ask(
            AlterPartitionReceived(self._broker, self._epoch(), proposals, _BY_ID if by_id else _BY_NAME)
        )
        await self._pause.wait_open()
        rejected: list[IsrUpdate] = []
        retryable: list[IsrUpdate] = []
        ineligible: list[IsrUpdate] = []
        for (name, state), result in zip(updates, results, strict=True):
            if result.leadership is not None:
                self._hosted.apply_isr(name, result.leadership)
                self._unresolved.discard(name)
                continue
            outcome = rejected if result.error in _FINAL else ineligible if result.error in _INELIGIBLE else retryable
            outcome.append((name, state))
        _log_rejected(self._broker, results)
        return IsrUpdateResult(rejected, retryable, ineligible)

    def _proposal(self, name: TopicPartition, state: Leadership) -> IsrProposal:
        """Returns the proposal with the topic's name, and its id if it has one; the version decides which is sent."""
        row = self._hosted.index.find_one(name)
        # A numpy byte string loses the zeros at its end.
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


def _log_rejected(broker: int, results: Sequence[IsrResult]) -> None:
    """Log how many proposals were rejected, and the first of them by name."""
    rejected = [result for result in results if result.error is not ErrorCode.NONE]
    if rejected:
        log.info(
            "%d ISR proposals of broker %d were rejected; the first: %s-%d, %s",
            len(rejected), broker, rejected[0].topic.name, rejected[0].partition, rejected[0].error.name,
        )  # fmt: skip

"""Last reports of participants about replicas that are not in their normal state.

They explain, a failure that was reported is not ended by a response to an order, and one whose end was reported does
not begin again by a late response. Nothing else depends on them, because a replica that cannot serve is marked in the
partition table as well. A report counts for the registration that has sent it.
"""

from collections.abc import Container
from typing import Final, NamedTuple

from kactl.model import Broker, ReplicaStatus, TopicPartition

# Of each broker. If more of its replicas fail, the reports of the first ones are dropped, and only their marks remain,
# which a response that was late can end: the replica then fails once more. So many READY are kept, too.
REPORTS_MAX: Final = 1_000


class ReplicaReport(NamedTuple):
    """A report.

    Attributes:
        detail: what the handler has raised, or which call is in progress.
        since_ms: monotonic; the beginning of the state.
        broker_epoch: the registration that has sent it.
        failures: in a row.
        next_ms: monotonic; when the handler is called again. None if that is not known.
    """

    status: ReplicaStatus
    detail: str
    since_ms: float
    broker_epoch: int
    failures: int = 0
    next_ms: float | None = None

    @property
    def fails(self) -> bool:
        """Whether the handler has failed, wherever it is called again."""
        return self.status.is_failure or self.status is ReplicaStatus.RETRYING


class ReplicaReports:
    """The reports of all brokers."""

    def __init__(self) -> None:
        self._reports: dict[int, dict[TopicPartition, ReplicaReport]] = {}
        self._ready: dict[int, dict[TopicPartition, int]] = {}

    def put(self, broker: int, name: TopicPartition, report: ReplicaReport) -> None:
        """Store a report in place of an earlier one of the same replica. READY only removes that."""
        reports = self._reports.setdefault(broker, {})
        if reports and next(iter(reports.values())).broker_epoch != report.broker_epoch:
            reports.clear()
        reports.pop(name, None)
        if report.status is not ReplicaStatus.READY:
            reports[name] = report
        if len(reports) > REPORTS_MAX:
            del reports[next(iter(reports))]
        if not reports:
            del self._reports[broker]

    def put_ready(self, broker: int, name: TopicPartition, number: int) -> None:
        """Note that a replica is ready: it may have failed before.

        Args:
            number: of the last request to any broker; see `LeaderAndIsr`.
        """
        ready = self._ready.setdefault(broker, {})
        ready.pop(name, None)
        ready[name] = number
        if len(ready) > REPORTS_MAX:
            del ready[next(iter(ready))]

    def ready_after(self, broker: int, number: int) -> list[TopicPartition]:
        """Returns the replicas of a broker that were reported to be ready after the request with a number."""
        return [name for name, last in self._ready.get(broker, {}).items() if last >= number]

    def forget(self, broker: int) -> None:
        """Remove the reports of a broker that is not registered any more."""
        self._reports.pop(broker, None)
        self._ready.pop(broker, None)

    def forget_topics(self, topics: Container[str]) -> None:
        """Remove the reports of replicas of deleted topics."""
        for broker, reports in tuple(self._reports.items()):
            kept = {name: report for name, report in reports.items() if name.topic not in topics}
            if kept:
                self._reports[broker] = kept
            else:
                del self._reports[broker]

    def of_broker(self, broker: Broker) -> dict[TopicPartition, ReplicaReport]:
        """Returns what the present registration of a broker has reported last, by partition."""
        reports = self._reports.get(broker.id, {})
        return {name: report for name, report in reports.items() if report.broker_epoch == broker.epoch}

    def of(self, name: TopicPartition, broker: Broker) -> ReplicaReport | None:
        """Returns the report of one replica under the present registration of its broker; None if it is normal."""
        report = self._reports.get(broker.id, {}).get(name)
        return report if report is not None and report.broker_epoch == broker.epoch else None

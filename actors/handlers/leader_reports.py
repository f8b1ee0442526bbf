"""Handler of the reports of leaders that act. Spectators receive them as `ready`; no decision depends on them."""

from kactl.decide.messages.broker import ReportLeaders
from kactl.decide.messages.events import Event
from kactl.decide.messages.routes import LeaderRows
from kactl.decide.state.table import NO_ROW
from kactl.model.errors import BrokerNotAvailable, StaleBrokerEpoch

from .base import Handler, Handlers


class LeaderReports(Handlers):
    """Stores the reports beside the partition table."""

    def handlers(self) -> dict[type[Event], Handler]:
        return {ReportLeaders: self.on_report_leaders}

    async def on_report_leaders(self, event: ReportLeaders) -> None:
        registered = self.cluster.brokers.get(event.broker)
        if registered is None:
            raise BrokerNotAvailable(event.broker)
        if registered.epoch != event.broker_epoch:
            raise StaleBrokerEpoch(event.broker, event.broker_epoch, registered.epoch)
        table, reported = self.cluster.table, LeaderRows.decoded(event.leaders)
        index = table.rows_at(reported.names)
        known = index != NO_ROW
        rows = table.rows(index[known])
        own = rows.leader == event.broker
        self.cluster.readiness.put(
            rows.index[own],
            rows.topic[own],
            rows.partition[own],
            reported.leader_epoch[known][own],
            reported.leads[known][own],
        )
        self.history.wake()

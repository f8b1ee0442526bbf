"""Construction of all handlers, with their dependencies on each other."""

from kactl.actors.machines.topic_settings import Unclean
from kactl.actors.priority_inbox import Timers
from kactl.decide.messages.events import Event

from .alter_partition import IsrProposals
from .balance import Balancing
from .base import ControllerContext, Handler
from .broker_responses import BrokerAnswers
from .brokers import BrokerEvents
from .controller_replicas import Hosting
from .controllership import Controllership, RetryLater
from .deletion import Deletion
from .deletion_events import DeletionEvents
from .drains import Drains
from .elections import Elections
from .failover import Failover
from .features import FeatureEvents
from .leases import Leases
from .offline import Offline, StoppedReplicas
from .ownership import Ownership
from .participant_ids import ParticipantIds
from .partition_expansion import Growth
from .partition_reports import LeaderReports, PartitionReports
from .producer_ids import ProducerIds
from .reassignments import Reassignments
from .serving_replicas import ServingReplicas
from .shutdown import Shutdowns
from .standby import Standby
from .topics import TopicEvents


class AllHandlers:
    """All handlers of one controller.

    Args:
        unclean: reads whether unclean elections are allowed.
        retry_later: queues an event again after a back-off.

    Attributes:
        by_kind: the handler of each kind of event.
        controllership, failover, standby, hosting: used directly by the event loop.
    """

    def __init__(self, context: ControllerContext, *, unclean: Unclean, retry_later: RetryLater) -> None:
        timers = Timers(context.clock, context.enqueue)
        features = FeatureEvents(context)
        deletion = Deletion(context, timers)
        stopped = StoppedReplicas(context)
        ownership = Ownership(context, timers)
        offline = Offline(context, deletion, stopped, ownership)
        leases = Leases(context, timers, ownership)
        reassignments = Reassignments(context, deletion)
        serving = ServingReplicas(
            context, stopped, deletion=deletion, reassignments=reassignments, timers=timers, ownership=ownership
        )
        self.hosting = Hosting(context)
        balancing = Balancing(context, timers)
        drains = Drains(context, timers)
        ids = ParticipantIds(context)
        brokers = BrokerEvents(
            context,
            features,
            offline=offline,
            deletion=deletion,
            reassignments=reassignments,
            hosting=self.hosting,
            timers=timers,
            stopped=stopped,
            leases=leases,
            balancing=balancing,
            drains=drains,
            ownership=ownership,
            ids=ids,
        )
        topics = TopicEvents(context, unclean, deletion, self.hosting, leases=leases, ownership=ownership)
        growth = Growth(context, topics)
        topics.grow = growth.on_add_partitions
        elections = Elections(context, unclean)
        shutdowns = Shutdowns(
            context,
            on_broker_startup=brokers.on_broker_startup,
            timers=timers,
            deletion=deletion,
            stopped=stopped,
            drains=drains,
            ownership=ownership,
        )
        self.standby = Standby(context, timers)
        self.failover = Failover(
            context,
            topics,
            features,
            deletion,
            reassignments=reassignments,
            elections=elections,
            balancing=balancing,
            standby=self.standby,
            leases=leases,
            drains=drains,
            ownership=ownership,
        )
        self.controllership = Controllership(
            context,
            self.failover,
            retry_later=retry_later,
            standby=self.standby,
            timers=timers,
            unclean=unclean,
        )
        self.by_kind: dict[type[Event], Handler] = {}
        for group in (
            self.controllership,
            self.standby,
            brokers,
            topics,
            growth,
            DeletionEvents(context, deletion),
            BrokerAnswers(context, offline, serving, reassignments),
            PartitionReports(context, offline, serving),
            LeaderReports(context),
            serving,
            leases,
            ownership,
            reassignments,
            elections,
            balancing,
            shutdowns,
            features,
            IsrProposals(context),
            ProducerIds(context),
            ids,
        ):
            handlers = group.handlers()
            if twice := self.by_kind.keys() & handlers.keys():
                raise ValueError(f"two handlers of {sorted(kind.__name__ for kind in twice)}: leave one of them")
            self.by_kind |= handlers

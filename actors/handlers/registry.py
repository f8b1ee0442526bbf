"""All handlers of the controller, each given those that it relies on. Read it to see who relies on whom."""

from kactl.actors.machines.unclean import Unclean
from kactl.messages.events import Event

from .alter_partition import IsrProposals
from .balance import Balancing
from .base import Handler, Reach
from .broker_responses import BrokerAnswers
from .brokers import BrokerEvents
from .controller_replicas import Hosting
from .controllership import Controllership, LookAgain
from .deletion import Deletion
from .deletion_events import DeletionEvents
from .elections import Elections
from .failover import Failover
from .features import FeatureEvents
from .offline import Offline
from .partition_expansion import Growth
from .producer_ids import ProducerIds
from .reassignments import Reassignments
from .shutdown import Shutdowns
from .standby import Standby
from .timers import Timers
from .topics import TopicEvents


class AllHandlers:
    """See the module.

    Args:
        unclean: whether unclean elections are allowed.
        look_again: puts an event down for later.

    Attributes:
        by_kind: the handler of each kind of event.
        controllership, failover, standby, hosting: those that others know by name.
    """

    def __init__(self, reach: Reach, *, unclean: Unclean, look_again: LookAgain) -> None:
        timers = Timers(reach.clock, reach.enqueue)
        features = FeatureEvents(reach)
        deletion = Deletion(reach, timers)
        offline = Offline(reach, deletion)
        reassignments = Reassignments(reach, deletion)
        self.hosting = Hosting(reach)
        brokers = BrokerEvents(
            reach,
            features,
            offline=offline,
            deletion=deletion,
            reassignments=reassignments,
            hosting=self.hosting,
        )
        topics = TopicEvents(reach, unclean, deletion, self.hosting)
        elections = Elections(reach, unclean)
        balancing = Balancing(reach, timers)
        shutdowns = Shutdowns(reach, welcome=brokers.welcome, timers=timers)
        self.standby = Standby(reach, timers)
        self.failover = Failover(
            reach,
            topics,
            features,
            deletion,
            reassignments=reassignments,
            elections=elections,
            balancing=balancing,
            standby=self.standby,
        )
        self.controllership = Controllership(
            reach,
            self.failover,
            look_again=look_again,
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
            Growth(reach, topics),
            DeletionEvents(reach, deletion),
            BrokerAnswers(reach, offline, reassignments),
            reassignments,
            elections,
            balancing,
            shutdowns,
            features,
            IsrProposals(reach),
            ProducerIds(reach),
        ):
            self.by_kind |= group.handlers()

"""What every store keeps, as stories. A store joins by a test class with a fixture `stores`:

    class TestMemoryStore(StoreContract):
        @pytest.fixture
        def stores(self) -> Stores: ...

Events are waited for, never slept for; a store may report more than what is asked for here, but no less.
"""

from .store_brokers import BrokerContract, NotificationContract
from .store_changes import ChangesContract
from .store_controllership import ControllershipContract, FencingContract
from .store_deletion import DeletionContract
from .store_features import FeatureContract, ProducerIdContract, WatchedLeadershipContract
from .store_leadership import LeadershipContract, LeaderWriteContract
from .store_requests import RequestContract
from .store_topics import TopicContract


class StoreContract(
    ControllershipContract,
    FencingContract,
    LeadershipContract,
    LeaderWriteContract,
    TopicContract,
    BrokerContract,
    NotificationContract,
    DeletionContract,
    RequestContract,
    FeatureContract,
    ProducerIdContract,
    WatchedLeadershipContract,
    ChangesContract,
):
    """All of it."""

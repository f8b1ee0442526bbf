"""The contract suite of stores. A store runs it by a test class with a fixture `stores`:

    class TestMemoryStore(StoreContract):
        @pytest.fixture
        def stores(self) -> Stores: ...

Tests wait for events and never sleep; a store may report more events than required here, but no fewer.
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
    """The whole contract."""

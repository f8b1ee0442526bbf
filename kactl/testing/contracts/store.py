"""Contract suite of stores. A store runs it by a test class with a fixture `stores`:

    from kactl.testing.contracts.store import StoreContract, Stores

    class TestMyStore(StoreContract):
        @pytest.fixture
        def stores(self) -> Stores: ...

`Stores` opens clients of one new, empty store, and ends sessions. The tests are asynchronous and run by anyio's plug-in
of pytest, on asyncio. They wait for events and never sleep; a store may report more events than required here, but no
fewer.
"""

from .store_brokers import BrokerContract, NotificationContract
from .store_changes import ChangesContract
from .store_controllership import ControllershipContract, FencingContract
from .store_deletion import DeletionContract
from .store_features import FeatureContract, ProducerIdContract, WatchedLeadershipContract
from .store_leadership import LeadershipContract, LeaderWriteContract
from .store_maintenance import MaintenanceContract
from .store_remote_sessions import EvictionContract, RemoteSessionContract
from .store_requests import RequestContract
from .store_support import SESSION_MS, Stores
from .store_topic_ids import TopicIdContract
from .store_topics import TopicContract

__all__ = ["SESSION_MS", "StoreContract", "Stores"]


class StoreContract(
    ControllershipContract,
    FencingContract,
    LeadershipContract,
    LeaderWriteContract,
    TopicContract,
    TopicIdContract,
    BrokerContract,
    RemoteSessionContract,
    EvictionContract,
    NotificationContract,
    DeletionContract,
    RequestContract,
    FeatureContract,
    MaintenanceContract,
    ProducerIdContract,
    WatchedLeadershipContract,
    ChangesContract,
):
    """The whole contract."""

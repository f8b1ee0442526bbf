"""Permission of unclean elections, by topic.

The setting of a topic in the store takes precedence over the one for all brokers in the store, and that over this
instance's own.
"""

from typing import Final

import numpy as np

from kactl.decide.machines.election import Election, nobody_in_sync_online
from kactl.decide.state.cluster import Cluster
from kactl.decide.state.rows import Bools, Rows
from kactl.model.errors import StoreError
from kactl.runtime.logs import logger
from kactl.stores.base import Store

log = logger(__name__)

KEY: Final = "unclean.leader.election.enable"


class Unclean:
    """Reads whether unclean elections are allowed.

    Attributes:
        own: this instance's own setting.
        stored: the setting for all brokers in the store, which takes precedence; None if there is none.
    """

    def __init__(self, cluster: Cluster, store: Store, *, own: bool = False) -> None:
        self._cluster = cluster
        self._store = store
        self.own = own
        self.stored: bool | None = None

    @property
    def default(self) -> bool:
        """Returns whether unclean elections are allowed for topics without a setting."""
        return self.own if self.stored is None else self.stored

    async def allowed(self, rows: Rows, election: Election | None) -> tuple[Bools, Bools]:
        """Returns bool[n] twice: rows that need an unclean election and allow it; rows with an unreadable setting.

        Rows without leadership need none.
        """
        allowed = np.zeros(len(rows), np.bool_)
        unreadable = np.zeros(len(rows), np.bool_)
        if election not in (Election.OFFLINE, Election.UNCLEAN):
            return allowed, unreadable
        wanting = rows.has_leadership & nobody_in_sync_online(rows, self._cluster.live_brokers)
        if election is Election.UNCLEAN:
            return wanting, unreadable
        numbers = np.unique(rows.topic[wanting]).tolist()
        if not numbers:
            return allowed, unreadable
        names = {number: self._cluster.table.topic_at(number).name for number in numbers}
        try:
            configs = await self._store.topic_configs(sorted(names.values()))
        except StoreError as failed:
            log.error("the configuration of %d topics could not be read: %s", len(names), failed)
            configs = dict.fromkeys(names.values())
        for number, name in names.items():
            here = wanting & (rows.topic == number)
            config = configs.get(name)
            if config is None:
                unreadable |= here
                continue
            text = config.get(KEY)
            allowed |= here & (self.default if text is None else text.strip().lower() == "true")
        return allowed, unreadable

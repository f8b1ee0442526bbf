"""The stored cluster as values, past all clients; see `tests.sim.engine.stored`."""

from tests.sim.engine.stored import Entry, EntryStored

from .ensemble import Ensemble
from .entries import entries


class Content(EntryStored):
    """Content of an ensemble: all transactions that are decided.

    Args:
        chroot: of the store.
    """

    def __init__(self, ensemble: Ensemble, chroot: str) -> None:
        super().__init__(self._current)
        self._ensemble = ensemble
        self._chroot = chroot
        self._zxid = -1
        self._entries: dict[str, Entry] = {}

    def _current(self) -> dict[str, Entry]:
        """Returns all entries; they are read again after each transaction."""
        tree = max((server.tree for server in self._ensemble.servers), key=lambda tree: tree.zxid)
        if tree.zxid != self._zxid:
            self._entries, self._zxid = dict(entries(tree, self._chroot)), tree.zxid
        return self._entries

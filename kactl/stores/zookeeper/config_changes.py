"""Changed configurations, of topics and of all brokers, told from the notices under /config/changes.

Tools and brokers lay them there. A controller that lives in a broker learns of them from its broker; this one looks for
itself. It never deletes them.
"""

from collections.abc import Callable

from kazoo.exceptions import NoNodeError, ZookeeperError

from kactl.runtime.logs import logger
from kactl.stores.base import Changed, StoreEvent

from . import layout
from .client import Client
from .responses import Responses
from .watches import Kind, Watches

log = logger(__name__)


class ConfigChanges:
    """Follows the notices from the first look on.

    Args:
        changed: gets TOPIC_CONFIG or DEFAULT_CONFIG for each new notice that speaks of a topic or of all brokers.
    """

    def __init__(self, client: Client, watches: Watches, changed: Callable[[StoreEvent], None]) -> None:
        self._client = client
        self._watches = watches
        self._changed = changed
        self._known: set[str] | None = None

    def begin(self) -> None:
        """Look, unless we follow already: what stands now is known, and the watch is armed."""
        if self._known is None:
            self._known = set()
            self._look(self._remember)

    def forget(self) -> None:
        """The session has ended, and the watch with it."""
        self._known = None

    def look(self) -> None:
        """Something came or went; arm the watch again and tell what came."""
        if self._known is not None:
            self._look(self._compare)

    def _look(self, then: Callable[[set[str]], None]) -> None:
        def listed(responses: Responses) -> None:
            if responses.error is not None:
                self._known = None  # with the session; the next failover begins again
                return
            (found,) = responses.results
            if isinstance(found, ZookeeperError):
                log.warning(
                    "%s could not be listed, changed configurations go unseen: %r", layout.CONFIG_CHANGES, found
                )
                self._known = None
                return
            self._watches.record_read(layout.CONFIG_CHANGES, Kind.CHILDREN, found)
            then({name for name in found[0] if name.startswith(layout.CONFIG_CHANGE_PREFIX)})

        self._client.submit([self._client.children(layout.CONFIG_CHANGES, watch=True)], listed)

    def _remember(self, names: set[str]) -> None:
        self._known = names

    def _compare(self, names: set[str]) -> None:
        new = sorted(names - (self._known or set()))
        self._known = names
        paths = [f"{layout.CONFIG_CHANGES}/{name}" for name in new]

        def read(responses: Responses) -> None:
            if responses.error is None:
                for path, node in zip(paths, responses.results, strict=True):
                    self._tell(path, node)

        self._client.submit([self._client.get(path) for path in paths], read)

    def _tell(self, path: str, node: object) -> None:
        if isinstance(node, NoNodeError):
            return
        try:
            assert isinstance(node, tuple), node
            topic = layout.decode_config_change(node[0])
            of_all = layout.is_default_config_change(node[0])
        except (layout.Malformed, AssertionError) as error:
            log.warning("%s is no notice and is passed over: %s", path, error)
            return
        if topic is not None:
            self._changed(StoreEvent(Changed.TOPIC_CONFIG, topic))
        elif of_all:
            self._changed(StoreEvent(Changed.DEFAULT_CONFIG))

"""Changed configurations of topics and of all brokers, from the notices under /config/changes.

Tools and brokers write the notices. A controller inside a broker learns of them from its broker; this one watches the
notices by itself. It never deletes them.
"""

from collections.abc import Callable

from kazoo.exceptions import NoNodeError, ZookeeperError

from kactl.runtime.logs import logger
from kactl.stores.base import Changed, StoreEvent
from kactl.stores.formats import records

from . import layout
from .client import Client
from .responses import Responses
from .watches import Kind, Watches

log = logger(__name__)


class ConfigChanges:
    """Follows the notices from the first read on.

    Args:
        changed: receives TOPIC_CONFIG or DEFAULT_CONFIG for each new notice about a topic or about all brokers.
    """

    def __init__(self, client: Client, watches: Watches, changed: Callable[[StoreEvent], None]) -> None:
        self._client = client
        self._watches = watches
        self._changed = changed
        self._known: set[str] | None = None

    def begin(self) -> None:
        """Start to follow the notices, unless started: existing notices are known, and the watch is armed."""
        if self._known is None:
            self._known = set()
            self._list(self._remember)

    def forget(self) -> None:
        """Stop: the session has ended, and the watch with it."""
        self._known = None

    def check(self) -> None:
        """Arm the watch again after an event, and report new notices."""
        if self._known is not None:
            self._list(self._compare)

    def _list(self, then: Callable[[set[str]], None]) -> None:
        def listed(responses: Responses) -> None:
            if responses.error is not None:
                self._known = None  # the session has ended; the next failover starts again
                return
            (children,) = responses.results
            if isinstance(children, ZookeeperError):
                log.warning(
                    "%s could not be listed, configuration changes are missed: %r", layout.CONFIG_CHANGES, children
                )
                self._known = None
                return
            self._watches.record_read(layout.CONFIG_CHANGES, Kind.CHILDREN, children)
            then({name for name in children[0] if name.startswith(layout.CONFIG_CHANGE_PREFIX)})

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
                    self._report(path, node)

        self._client.submit([self._client.get(path) for path in paths], read)

    def _report(self, path: str, node: object) -> None:
        if isinstance(node, NoNodeError):
            return
        try:
            assert isinstance(node, tuple), node
            topic = records.decode_config_change(node[0])
            of_all = records.is_default_config_change(node[0])
        except (records.Malformed, AssertionError) as error:
            log.warning("%s is not a valid notice and is skipped: %s", path, error)
            return
        if topic is not None:
            self._changed(StoreEvent(Changed.TOPIC_CONFIG, topic))
        elif of_all:
            self._changed(StoreEvent(Changed.DEFAULT_CONFIG))

"""Continuous reader of the metadata that brokers return to clients."""

import threading
import time
from types import TracebackType
from typing import Final, Self

from ..brokers import KafkaBroker
from ..metadata import FanOut, MetadataClient

EVERY_S: Final = 0.05
JOIN_S: Final = 30.0


class MetadataWatcher:
    """Requests metadata from each broker every 50 ms, in a thread, within the `with` block.

    Attributes:
        answers: all responses.
    """

    def __init__(self, brokers: list[KafkaBroker]) -> None:
        self.answers: list[FanOut] = []
        self._brokers = brokers
        self._ended = threading.Event()
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._watch)

    @property
    def offline(self) -> set[str]:
        """Return the partitions that had no leader in any response."""
        return {name for answer in self.answers for name in answer.offline}

    def _watch(self) -> None:
        clients = [MetadataClient(broker.client_port) for broker in self._brokers]
        try:
            while not self._ended.is_set():
                began = time.monotonic()
                self.answers += [client.look() for client in clients]
                self._ended.wait(max(0.0, EVERY_S - (time.monotonic() - began)))
        except OSError as error:
            self._error = error
        finally:
            for client in clients:
                client.__exit__()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(JOIN_S)
        if self._error is not None and error is None:
            raise self._error

"""Links of participants to this instance, and the registrations that are fenced because they have none yet.

A registration of a participant is *fenced* until a link of that registration has been opened to the active controller.
Fencing takes nothing away. The loss of a link does not fence: the session decides whether the participant lives.
Participants open their link before they register, so usually nothing is fenced. Kafka's brokers never are.
"""

import dataclasses
from collections.abc import Callable, Iterable

from kactl.decide.messages.sessions import ParticipantLink
from kactl.model import Broker
from kactl.runtime.clock import Clock


@dataclasses.dataclass(frozen=True, slots=True)
class LinkView:
    """The link of one registration.

    Attributes:
        is_linked: a link is open.
        since_ms: wall clock; when the link was opened, or lost. None if there has been none.
        reason: why it was lost.
        endpoint_error: why other participants cannot connect to the address that it advertises; empty if they can, or
            if it advertises none.
    """

    is_linked: bool
    since_ms: int | None = None
    reason: str = ""
    endpoint_error: str = ""


_NEVER = LinkView(is_linked=False)


class Links:
    """Links of one controller instance.

    Args:
        reports: whether the network reports links. If not, nothing is fenced.
        awaited: called with a broker that has opened the first link of a registration, or of a controllership.
    """

    def __init__(self, clock: Clock, *, reports: bool, awaited: Callable[[int], None]) -> None:
        self._clock = clock
        self._reports = reports
        self._awaited = awaited
        self._views: dict[int, tuple[bytes, LinkView]] = {}  # the last link of each broker
        self._open: set[tuple[int, bytes]] = set()
        self._reached: set[tuple[int, bytes]] = set()  # since the election

    def opened(self, link: ParticipantLink) -> None:
        """A link was opened, or has replaced one."""
        key = (link.broker, link.incarnation)
        self._open.add(key)
        view = LinkView(is_linked=True, since_ms=self._clock.now_ms(), endpoint_error=self._endpoint_error(link))
        self._views[link.broker] = link.incarnation, view
        if key not in self._reached:
            self._reached.add(key)
            self._awaited(link.broker)

    def _endpoint_error(self, link: ParticipantLink) -> str:
        incarnation, view = self._views.get(link.broker, (b"", _NEVER))
        return view.endpoint_error if incarnation == link.incarnation else ""

    def endpoint_failed(self, link: ParticipantLink, reason: str) -> None:
        """The participant of an open link was not found at its address, or was found if `reason` is empty."""
        incarnation, view = self._views.get(link.broker, (b"", _NEVER))
        if incarnation == link.incarnation:
            self._views[link.broker] = incarnation, dataclasses.replace(view, endpoint_error=reason)

    def closed(self, link: ParticipantLink, reason: str) -> None:
        """A link was lost."""
        self._open.discard((link.broker, link.incarnation))
        incarnation, _ = self._views.get(link.broker, (b"", _NEVER))
        if incarnation == link.incarnation:
            view = LinkView(
                is_linked=False,
                since_ms=self._clock.now_ms(),
                reason=reason,
                endpoint_error=self._endpoint_error(link),
            )
            self._views[link.broker] = incarnation, view

    def elected(self) -> None:
        """Forget the links that are not open any more."""
        self._reached = set(self._open)

    def fenced(self, brokers: Iterable[Broker]) -> frozenset[int]:
        """Returns those of some registered brokers that are fenced. Forgets the links of earlier registrations."""
        if not self._reports:
            return frozenset()
        known = {broker.id: broker for broker in brokers if broker.incarnation}
        self._reached -= {
            key
            for key in self._reached - self._open
            if (registered := known.get(key[0])) is None or registered.incarnation != key[1]
        }
        return frozenset(
            broker.id for broker in known.values() if (broker.id, broker.incarnation) not in self._reached
        )  # fmt: skip

    def view(self, broker: Broker) -> LinkView | None:
        """Returns the link of a registration; None for a broker that has none, such as Kafka's."""
        if not self._reports or not broker.incarnation:
            return None
        incarnation, view = self._views.get(broker.id, (b"", _NEVER))
        return view if incarnation == broker.incarnation else _NEVER

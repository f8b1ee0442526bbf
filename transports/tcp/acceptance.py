"""Accepted connections: their handshakes, by purpose, and which program of this process each of them is for."""

from collections.abc import Callable, Mapping

from kactl.decide.messages.sessions import UNNAMED
from kactl.model import GIVEN_IDS, check_participant_name
from kactl.model.errors import ControllerUnreachable, NotAuthorized
from kactl.transports.base import ParticipantPort

from . import attempts, handshake
from .controller_links import ControllerLinks
from .handshake import CONTROL, IDENTIFY, VERIFY, Credentials, Hello
from .identity import Identity, Role, is_broker_id
from .limits import Limits
from .link import Link


class Acceptance:
    """The handshakes of one network.

    Args:
        credentials: returns those that are in use now.
        controllers: the instances of this process, by their ids.
        ports: the participants of this process, by their ids.
    """

    def __init__(
        self,
        cluster: str,
        limits: Limits,
        credentials: Callable[[], Credentials],
        controllers: Mapping[int, ControllerLinks],
        ports: Mapping[str, ParticipantPort],
    ) -> None:
        self._cluster = cluster
        self._limits = limits
        self._credentials = credentials
        self._controllers = controllers
        self._ports = ports

    async def accepted(self, link: Link) -> None:
        """Perform the handshake of an accepted connection, up to the welcome. Raises KactlError if it fails."""

        def answer(hello: Hello) -> Hello:
            return self._claims(hello, controller)

        # Which instance answers is decided before the handshake, and whether it is active again after it.
        controller, credentials = self.active(), self._credentials()
        hello, version = await handshake.accept(link, answer, credentials)
        method = "claimed" if credentials.secret is None else "secret"
        if link.peer_certificate() is not None:
            method = "certificate"
        link.principal = hello.identity.principal(peer=link.peer_host, method=method)
        if hello.purpose == VERIFY:
            if hello.target:
                self._check_role(link, hello, Role.CONTROLLER)
            handshake.welcome(link, version)
            link.close("the address has been verified")
            return
        self._check_role(link, hello, Role.PARTICIPANT, Role.SPECTATOR, Role.CLIENT)
        assert controller is not None, "the handshake has failed"
        # It is no stranger any more, and does not occupy the place of one while it waits for an election.
        controller.tasks.spawn(controller.receive(link, hello, version))

    def refused(self, host: str, link: Link | None, reason: str) -> None:
        """Record a connection that did not become a link, if a controller of this process is here to record it."""
        controller = self.active()
        if controller is not None:
            attempts.refused(controller.port, host, link, reason)

    def active(self) -> ControllerLinks | None:
        """Returns the active controller of this process, or another one; None if none runs here."""
        instances = tuple(self._controllers.values())
        return next(
            (controller for controller in instances if controller.port.standby() is None),
            instances[0] if instances else None,
        )

    def _claims(self, hello: Hello, controller: ControllerLinks | None) -> Hello:
        """Returns the claims of this side. Raises ControllerUnreachable, NotAuthorized."""
        silence_ms = self._limits.silence_ms
        if hello.purpose in (CONTROL, IDENTIFY) or (hello.purpose == VERIFY and not hello.target):
            if controller is None:
                raise ControllerUnreachable("no controller runs at this address")
            identity = Identity(self._cluster, Role.CONTROLLER, str(controller.port.node_id))
            return handshake.hello(identity, silence_ms=silence_ms)
        if hello.purpose == VERIFY:
            port = self._ports.get(hello.target)
            if port is None:
                raise NotAuthorized(f"no participant {hello.target} runs at this address")
            identity = Identity(self._cluster, Role.PARTICIPANT, port.claim)
            return handshake.hello(identity, incarnation=port.incarnation, silence_ms=silence_ms)
        raise NotAuthorized(f"this version offers no links for the purpose {hello.purpose!r}")

    @staticmethod
    def _check_role(link: Link, hello: Hello, *roles: Role) -> None:
        if hello.role not in roles:
            needed = " or ".join(role.value for role in roles)
            error = NotAuthorized(f"{hello.identity} may not open this link: it needs the role {needed}")
        elif hello.role is Role.PARTICIPANT and (reason := _wrong_claim(hello.name)):
            error = NotAuthorized(f"{hello.identity} is no participant: {reason}")
        else:
            return
        handshake.refuse(link, error)
        raise error


def _wrong_claim(name: str) -> str | None:
    """Returns why a participant must not have a name; None if it may."""
    if not is_broker_id(name):
        return None if name == UNNAMED else check_participant_name(name)
    if int(name) in GIVEN_IDS:
        return f"controllers give the ids {GIVEN_IDS[0]} to {GIVEN_IDS[-1]} to names: connect under the name"
    return None

"""Requests that participants may send to a controller. One without an entry is rejected."""

import enum
import fnmatch
from collections.abc import Collection, Mapping
from typing import Final

from kactl.decide.messages import admin, broker, leases
from kactl.decide.messages.admin import ControllerRequest
from kactl.decide.messages.sessions import UNNAMED, ParticipantLink, Register, SessionRequest, VerifyEndpoint, claim_of
from kactl.model import NO_EPOCH
from kactl.model.errors import BadConfig, NotAuthorized
from kactl.stores.formats.registration import is_broker_id
from kactl.transports.tcp.wire import Begin


class Right(enum.Enum):
    """Senders of a type of request over the network."""

    NONE = "none"  # administrators use the admin API
    OWN = "own"  # the participant with the registration that the request names
    ANY = "any"  # every participant


RIGHTS: Final[dict[type[ControllerRequest], Right]] = {
    admin.ResignController: Right.NONE,
    admin.ReleaseController: Right.NONE,
    admin.EnableUncleanElections: Right.NONE,
    admin.AwaitEvents: Right.NONE,
    admin.UndrainBroker: Right.NONE,
    admin.AllocateBrokerId: Right.NONE,  # for the handshake
    admin.ResetReplica: Right.NONE,
    admin.ReplicaLeaderElection: Right.NONE,
    admin.CreateTopic: Right.NONE,
    admin.DeleteTopic: Right.NONE,
    admin.EnsureTopic: Right.ANY,
    admin.AddPartitions: Right.NONE,
    admin.ApiPartitionReassignment: Right.NONE,
    admin.ListPartitionReassignments: Right.NONE,
    admin.UpdateFeatures: Right.NONE,
    broker.ControlledShutdown: Right.OWN,
    broker.AlterPartitionReceived: Right.OWN,
    broker.AllocateProducerIds: Right.OWN,
    broker.ReportPartitions: Right.OWN,
    broker.ReportLeaders: Right.OWN,
    leases.ReportLeaderships: Right.OWN,
}


def check_request(request: Begin, broker: int) -> None:
    """Raises NotAuthorized unless participant `broker` may send a request to the controller."""
    if request.kind is None:
        return  # it is rejected as no request
    name = request.kind.__name__
    match RIGHTS.get(request.kind, Right.NONE):
        case Right.NONE:
            raise NotAuthorized(f"participant {broker} must not send {name}: use the admin API")
        case Right.OWN:
            _check_own(name, broker, request.broker, request.broker_epoch)


# Who may create topics: ids, and names in which `*` and `?` are wildcards, by patterns of the names of topics.
EnsureTopics = Mapping[str, Collection[int | str]]


def check_ensure_topics(allowed: EnsureTopics | None) -> None:
    """Raises BadConfig if an entry is no id and no name of a participant."""
    for topic, participants in (allowed or {}).items():
        if isinstance(participants, str):
            raise BadConfig("ensure_topics", f"{topic}: {participants!r} is one text: give a list of ids and names")
        for each in participants:
            if isinstance(each, bool) or not isinstance(each, int | str) or each == "":
                raise BadConfig("ensure_topics", f"{topic}: {each!r} is neither the id nor the name of a participant")
            if isinstance(each, str) and each.isdecimal():
                raise BadConfig("ensure_topics", f"{topic}: {each!r} is an id in quotes: write {each}")


def check_topic(topic: str, link: ParticipantLink, allowed: EnsureTopics | None) -> None:
    """Raises NotAuthorized unless the participant of a link may create a topic. None: each may create any topic."""
    if allowed is None:
        return
    for pattern, participants in allowed.items():
        if fnmatch.fnmatchcase(topic, pattern) and any(_is_named(link, each) for each in participants):
            return
    named = link.claim if _has_name(link) else link.broker
    raise NotAuthorized(
        f"participant {named} must not create topic {topic}: add it to ensure-topics of [network] (ensure_topics=), or "
        "create the topic by the admin API"
    )


def _has_name(link: ParticipantLink) -> bool:
    return link.claim not in ("", UNNAMED) and not is_broker_id(link.claim)


def _is_named(link: ParticipantLink, participant: int | str) -> bool:
    if isinstance(participant, int):
        return link.broker == participant
    # The name that its network has verified. One without a name is only meant by `*`.
    return participant == UNNAMED or (_has_name(link) and fnmatch.fnmatchcase(link.claim, participant))


def _check_own(name: str, broker: int, named: int | None, epoch: int | None) -> None:
    if named != broker:
        raise NotAuthorized(f"participant {broker} must not send {name} for broker {named}")
    if epoch is None or epoch == NO_EPOCH:
        # It would not be compared with the registration, as for requests of operators.
        raise NotAuthorized(f"participant {broker} must not send {name} without its broker epoch")


def check_session(request: SessionRequest, link: ParticipantLink) -> None:
    """Raises NotAuthorized unless the link of a participant's registration may carry a request of a session."""
    name, broker = type(request).__name__, link.broker
    if request.broker != broker:
        raise NotAuthorized(f"participant {broker} must not send {name} for broker {request.broker}")
    if isinstance(request, Register | VerifyEndpoint) and request.incarnation != link.incarnation:
        raise NotAuthorized(f"participant {broker} must not send {name} for another incarnation than that of its link")
    if isinstance(request, Register) and claim_of(broker, request.name) != link.claim:
        raise NotAuthorized(f"participant {link.claim} must not register as {request.name!r}")

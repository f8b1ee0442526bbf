"""Authorization of the requests on a listener.

Without logins only the requests of brokers are restricted, by address. With logins each request type has an entry in a
table: what its sender must be allowed, and the response if it is not. A request about several topics is reduced to
those that are allowed, and the response has an error for each of the others. A request without an entry is denied.

Source: the authorization of Kafka's KafkaApis; https://kafka.apache.org/documentation/#operations_resources_and_protocols
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from kactl.model import NO_EPOCH, ZERO_ID, TopicRef
from kactl.model.errors import ErrorCode
from kactl.security.access import CLUSTER, Authorizer, Operation, Principal

from .api_keys import (
    ALLOCATE_PRODUCER_IDS,
    ALTER_PARTITION,
    ALTER_PARTITION_REASSIGNMENTS,
    ALTER_USER_SCRAM_CREDENTIALS,
    API_VERSIONS,
    CONTROLLED_SHUTDOWN,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    ELECT_LEADERS,
    LIST_PARTITION_REASSIGNMENTS,
    METADATA,
    UPDATE_FEATURES,
)
from .delegated import Decided, DelegatedAuthorizer
from .field_types import Values
from .relayed_authorization import RELAYED_CHECKS
from .responses import result
from .verdict import Peer, Verdict, unchanged, with_error

BROKER_REQUESTS: Final = frozenset({CONTROLLED_SHUTDOWN, ALTER_PARTITION, ALLOCATE_PRODUCER_IDS})
# Rounds of questions about one request. A right on the cluster leads to those on topics, and these to what the response
# shows of them. What is unknown after the last round is denied.
_ROUNDS_MAX: Final = 4
_DENIED_CLUSTER: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_DENIED_TOPIC: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class Decisions(Protocol):
    """Decides about the requests on one listener."""

    def knows(self, key: int) -> bool:
        """Returns whether requests of a type are accepted at all."""

    def may_speak_for(self, principal: Principal, broker: int) -> bool:
        """Returns whether a principal has proved that it is a broker."""

    def is_administrator(self, principal: Principal) -> bool:
        """Returns whether a principal may do everything with the cluster. Its requests are never turned away."""

    async def decide(self, key: int, request: dict[str, Any], version: int, principal: Principal) -> Decided | None:
        """Returns the decisions of a function of the program about a request; None if there is no such function."""

    def check(
        self, key: int, request: dict[str, Any], version: int, principal: Principal, decided: Decided | None = None
    ) -> Verdict:
        """Returns the decision about a request.

        Args:
            decided: what `decide` has returned.
        """


class OpenListener:
    """Decisions without logins: everybody may do everything, but only a broker's hosts may send its requests.

    Args:
        may_be: returns whether a broker may connect from an address; None if every address may send the requests of
            every broker.
        may_alter_users: returns whether users may be changed; with a broker's password a client has its rights.
    """

    def __init__(
        self, may_be: Callable[[str, int], bool] | None, may_alter_users: Callable[[], bool] = lambda: True
    ) -> None:
        self._may_be = may_be
        self._may_alter_users = may_alter_users

    def knows(self, key: int) -> bool:
        return True

    def may_speak_for(self, principal: Principal, broker: int) -> bool:
        return False

    def is_administrator(self, principal: Principal) -> bool:
        return False

    async def decide(self, key: int, request: dict[str, Any], version: int, principal: Principal) -> None:
        return None

    def check(
        self, key: int, request: dict[str, Any], version: int, principal: Principal, decided: Decided | None = None
    ) -> Verdict:
        if key == ALTER_USER_SCRAM_CREDENTIALS and not self._may_alter_users():
            return _denied_users(request)
        if key not in BROKER_REQUESTS:
            return Verdict(request, unchanged)
        if self._may_be is not None and not self._may_be(principal.peer, request["broker_id"]):
            return Verdict(None, with_error(_DENIED_CLUSTER))
        return _of_broker(request)


def _of_broker(request: dict[str, Any]) -> Verdict:
    """A request of a broker: it has to name its registration, or an earlier one could still act."""
    if request["broker_epoch"] == NO_EPOCH:
        return Verdict(None, with_error(ErrorCode.STALE_BROKER_EPOCH))
    return Verdict(request, unchanged)


class Authorization:
    """The decisions for one listener.

    Args:
        topics: returns all topics.
    """

    def __init__(self, authorizer: Authorizer, topics: Callable[[], Iterable[TopicRef]]) -> None:
        self._authorizer = authorizer
        self._topics = topics
        self._checks: Mapping[int, Callable[[Peer, dict[str, Any], int], Verdict]] = {
            API_VERSIONS: lambda peer, request, version: Verdict(request, unchanged),
            METADATA: self._metadata,
            CONTROLLED_SHUTDOWN: self._broker,
            ALTER_PARTITION: self._broker,
            ALLOCATE_PRODUCER_IDS: self._broker,
            CREATE_TOPICS: self._create_topics,
            DELETE_TOPICS: self._delete_topics,
            CREATE_PARTITIONS: self._create_partitions,
            ELECT_LEADERS: self._elect_leaders,
            ALTER_PARTITION_REASSIGNMENTS: _on_cluster(Operation.ALTER),
            LIST_PARTITION_REASSIGNMENTS: _on_cluster(Operation.DESCRIBE),
            UPDATE_FEATURES: _on_cluster(Operation.ALTER),
            ALTER_USER_SCRAM_CREDENTIALS: self._alter_users,
            DESCRIBE_USER_SCRAM_CREDENTIALS: _on_cluster(Operation.DESCRIBE),
            **RELAYED_CHECKS,
        }

    def knows(self, key: int) -> bool:
        return key in self._checks

    def may_speak_for(self, principal: Principal, broker: int) -> bool:
        return self._authorizer.may_speak_for(principal, broker)

    def is_administrator(self, principal: Principal) -> bool:
        return self._authorizer.allows(principal, Operation.ALL, CLUSTER)

    async def decide(self, key: int, request: dict[str, Any], version: int, principal: Principal) -> Decided | None:
        """See `Decisions`. The checks are repeated until each of their questions has an answer: an answer may lead to
        further questions.
        """
        if not isinstance(self._authorizer, DelegatedAuthorizer):
            return None
        decided = Decided(self._authorizer, principal)
        for _ in range(_ROUNDS_MAX):
            self.check(key, request, version, principal, decided)
            if not decided.unknown:
                break
            await decided.resolve()
        return decided

    def check(
        self, key: int, request: dict[str, Any], version: int, principal: Principal, decided: Decided | None = None
    ) -> Verdict:
        return self._checks[key](Peer(decided or self._authorizer, principal), request, version)

    def _broker(self, peer: Peer, request: dict[str, Any], version: int) -> Verdict:
        """Requests of brokers: each broker speaks for itself, and for its current registration."""
        may = peer.may(Operation.CLUSTER_ACTION) and peer.authorizer.may_speak_for(peer.principal, request["broker_id"])
        return _of_broker(request) if may else Verdict(None, with_error(_DENIED_CLUSTER))

    def _metadata(self, peer: Peer, request: dict[str, Any], version: int) -> Verdict:
        if request["topics"] is None or (version == 0 and not request["topics"]):
            return self._all_metadata(peer, request)
        allowed, denied = [], []
        for entry, name in self._named(request["topics"]):
            # An unknown id is reported as unknown to every client.
            if name is None or peer.may(Operation.DESCRIBE, name):
                allowed.append(entry)
            else:
                shown = entry["name"] or ("" if version < 12 else None)
                denied.append({"error_code": _DENIED_TOPIC, "name": shown, **_id_of(entry)})
        return Verdict({**request, "topics": allowed, "is_reduced": True}, _appending("topics", denied))

    def _all_metadata(self, peer: Peer, request: dict[str, Any]) -> Verdict:
        """All topics: those that the sender may not describe are left out."""
        known = list(self._topics())
        shown = [topic for topic in known if peer.may(Operation.DESCRIBE, topic.name)]
        if len(shown) == len(known):
            return Verdict(request, unchanged)
        entries = [{"name": topic.name, "topic_id": topic.id} for topic in shown]
        return Verdict({**request, "topics": entries, "is_reduced": True}, unchanged)

    def _named(self, entries: Iterable[dict[str, Any]]) -> list[tuple[dict[str, Any], str | None]]:
        """Returns each entry with the name of its topic; None if there is no topic with its id."""
        by_id = any(entry["name"] is None for entry in entries)
        names = {topic.id: topic.name for topic in self._topics()} if by_id else {}
        return [(entry, names.get(entry["topic_id"]) if entry["name"] is None else entry["name"]) for entry in entries]

    def _create_topics(self, peer: Peer, request: dict[str, Any], version: int) -> Verdict:
        everywhere = peer.may(Operation.CREATE)
        return _by_name(request, "topics", "topics", lambda name: everywhere or peer.may(Operation.CREATE, name))

    def _create_partitions(self, peer: Peer, request: dict[str, Any], version: int) -> Verdict:
        return _by_name(request, "topics", "results", lambda name: peer.may(Operation.ALTER, name))

    def _delete_topics(self, peer: Peer, request: dict[str, Any], version: int) -> Verdict:
        names: list[str] = []
        denied: list[dict[str, Any]] = []
        for name in request["topic_names"]:
            if peer.may(Operation.DELETE, name):
                names.append(name)
            else:
                denied.append({"name": name, "error_code": _DENIED_TOPIC})
        entries = []
        for entry, name in self._named(request["topics"]):
            if name is None or peer.may(Operation.DELETE, name):
                entries.append(entry)
                continue
            # The name of a topic that was named by its id is for those that may describe it.
            shown = name if entry["name"] is not None or peer.may(Operation.DESCRIBE, name) else None
            denied.append({"name": shown, "error_code": _DENIED_TOPIC, **_id_of(entry)})
        return _reduced(
            {**request, "topic_names": names, "topics": entries}, bool(names or entries), "responses", denied
        )

    def _elect_leaders(self, peer: Peer, request: dict[str, Any], version: int) -> Verdict:
        if peer.may(Operation.ALTER):
            return Verdict(request, unchanged)
        denied = [
            {
                "topic": entry["topic"],
                "partition_result": [
                    {"partition_id": number, **result(_DENIED_CLUSTER, "")} for number in entry["partitions"]
                ],
            }
            for entry in request["topic_partitions"] or ()
        ]
        return Verdict(None, lambda _: {"error_code": _DENIED_CLUSTER, "replica_election_results": denied})

    def _alter_users(self, peer: Peer, request: dict[str, Any], version: int) -> Verdict:
        if peer.may(Operation.ALTER):
            return Verdict(request, unchanged)
        return _denied_users(request)


def _denied_users(request: dict[str, Any]) -> Verdict:
    users = dict.fromkeys(entry["name"] for entry in (*request["deletions"], *request["upsertions"]))
    return Verdict(None, lambda _: {"results": [{"user": user, **result(_DENIED_CLUSTER, "")} for user in users]})


def _on_cluster(operation: Operation) -> Callable[[Peer, dict[str, Any], int], Verdict]:
    def check(peer: Peer, request: dict[str, Any], version: int) -> Verdict:
        if peer.may(operation):
            return Verdict(request, unchanged)
        return Verdict(None, with_error(_DENIED_CLUSTER))

    return check


def _by_name(request: dict[str, Any], of_request: str, of_response: str, may: Callable[[str], bool]) -> Verdict:
    allowed = [entry for entry in request[of_request] if may(entry["name"])]
    names = {entry["name"] for entry in allowed}
    denied = [
        {"name": name, **result(_DENIED_TOPIC, "")}
        for name in dict.fromkeys(entry["name"] for entry in request[of_request])
        if name not in names
    ]
    return _reduced({**request, of_request: allowed}, bool(allowed) or not denied, of_response, denied)


def _reduced(request: dict[str, Any], is_left: bool, of_response: str, denied: list[dict[str, Any]]) -> Verdict:
    return Verdict(request if is_left or not denied else None, _appending(of_response, denied))


def _appending(of_response: str, denied: list[dict[str, Any]]) -> Callable[[Values], Values]:
    if not denied:
        return unchanged
    return lambda response: {**response, of_response: [*response.get(of_response, ()), *denied]}


def _id_of(entry: dict[str, Any]) -> dict[str, Any]:
    return {"topic_id": entry.get("topic_id") or ZERO_ID}

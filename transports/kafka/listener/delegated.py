"""Authorization by a function of the program that embeds kactl, in place of access control lists.

The function receives all questions about a request at once, as Kafka's `Authorizer` does. Whatever goes wrong in it
denies: an exception, no result in time, another number of results, a result that is not True.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final, NamedTuple

from kactl.runtime.conditions import Conditions
from kactl.runtime.error_id import log_error
from kactl.runtime.logs import logger
from kactl.security.access import CLUSTER, BrokerPrincipals, Operation, Principal, Resource

log = logger(__name__)

# For one call of the function.
DECISION_S: Final = 2.0
# While a request waits: how often it is decided about again.
REFRESH_S: Final = 2.0


class Question(NamedTuple):
    """Whether a principal may carry out an operation on a resource."""

    operation: Operation
    resource: Resource


Answered = Sequence[bool] | Awaitable[Sequence[bool]]


class DelegatedAuthorizer:
    """Decisions by a function.

    Args:
        function: returns, or returns an awaitable of, one result for each question; True allows.
        super_users: names of principals that may do everything; the function is not called for them.
        brokers: the principals of brokers, which may send a broker's requests. Without any, a principal with the right
            ClusterAction may, and connections of brokers have the limits of clients.
    """

    def __init__(
        self,
        function: Callable[[Principal, Sequence[Question]], Answered],
        *,
        super_users: Collection[str] = (),
        brokers: BrokerPrincipals | None = None,
    ) -> None:
        self._function = function
        self._conditions = Conditions(log)
        self._super_users = frozenset(super_users)
        self.brokers = brokers or BrokerPrincipals()

    def allows(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        """Returns what is known without the function."""
        if principal.name in self._super_users:
            return True
        return operation is Operation.CLUSTER_ACTION and resource == CLUSTER and self.brokers.contains(principal.name)

    def may_speak_for(self, principal: Principal, broker: int) -> bool:
        return self.brokers.owns(principal.name, broker)

    async def ask(self, principal: Principal, questions: Sequence[Question]) -> list[bool]:
        """Returns the decisions of the function; all deny if it fails."""
        denied = [False] * len(questions)
        try:
            async with asyncio.timeout(DECISION_S):
                results = self._function(principal, tuple(questions))
                if inspect.isawaitable(results):
                    results = await results
                found = [result is True for result in results]
        except TimeoutError:
            text = "the authorizer did not return within %g s, so the request is denied"
            self._conditions.add("", logging.ERROR, text, DECISION_S)
            return denied
        except Exception as error:
            log_error(log, error, "the authorizer failed, so the request is denied")
            return denied
        if len(found) != len(questions):
            text = "the authorizer returned %d results for %d questions: all are denied"
            self._conditions.add("", logging.ERROR, text, len(found), len(questions), kind="number")
            return denied
        self._conditions.end("", "the authorizer decides again")
        return found


class Decided:
    """The decisions about one request: an `Authorizer` that collects what it does not know, and denies it.

    Attributes:
        unknown: the questions without an answer yet.
    """

    def __init__(self, authorizer: DelegatedAuthorizer, principal: Principal) -> None:
        self._authorizer = authorizer
        self._principal = principal
        self._answers: dict[Question, bool] = {}
        self.unknown: dict[Question, None] = {}

    def allows(self, principal: Principal, operation: Operation, resource: Resource) -> bool:
        if self._authorizer.allows(principal, operation, resource):
            return True
        question = Question(operation, resource)
        if question not in self._answers:
            self.unknown[question] = None
        return self._answers.get(question, False)

    def may_speak_for(self, principal: Principal, broker: int) -> bool:
        if self._authorizer.brokers:
            return self._authorizer.may_speak_for(principal, broker)
        return self.allows(principal, Operation.CLUSTER_ACTION, CLUSTER)

    async def resolve(self) -> None:
        """Answer the questions that have come up."""
        await self._ask(tuple(self.unknown))
        self.unknown.clear()

    async def refresh(self) -> None:
        """Answer all questions again and again, until cancelled."""
        while True:
            await asyncio.sleep(REFRESH_S)
            await self._ask(tuple(self._answers))

    async def _ask(self, questions: tuple[Question, ...]) -> None:
        if questions:
            answers = await self._authorizer.ask(self._principal, questions)
            self._answers.update(zip(questions, answers, strict=True))

"""Results of the orders of one request."""

from typing import Final

from kactl.decide.messages.control import Shorts
from kactl.decide.state.rows import Bools
from kactl.model.errors import ErrorCode
from kactl.runtime.clock import Clock

from .phase import Ticket
from .waiting import Signal

# A response waits no longer for its orders, so that a handler that hangs delays the next request by this time only.
RESPONSE_WAIT_MS: Final = 50.0


class Results:
    """Results by row, as far as they are known in time. A row without one counts as accepted."""

    def __init__(self, clock: Clock) -> None:
        self._tickets: list[tuple[int, Ticket]] = []
        self._open = 0
        self._signal = Signal(clock)

    def ticket(self, row: int) -> Ticket:
        """Returns the ticket of a new order."""
        ticket = Ticket(self._finished)
        self._tickets.append((row, ticket))
        self._open += 1
        return ticket

    def _finished(self) -> None:
        self._open -= 1
        if not self._open:
            self._signal.set()

    async def wait(self, limit_ms: float = RESPONSE_WAIT_MS) -> None:
        """Wait until all results are known, but no longer than a time limit."""
        await self._signal.wait_for(lambda: not self._open, limit_ms)

    def put(self, error: Shorts, *chosen: Bools) -> None:
        """Write the errors of failed rows into int16[n] `error`, and remove these rows from the columns `chosen`.

        The tickets of orders without a result become `accepted`.
        """
        for row, ticket in self._tickets:
            ticket.accepted = not ticket.finished
            if ticket.finished and ticket.error is not ErrorCode.NONE:
                error[row] = ticket.error
                for column in chosen:
                    column[row] = False

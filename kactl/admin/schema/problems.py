"""Refusals, as application/problem+json."""

from .words import Answer


class FieldError(Answer, frozen=True, omit_defaults=True):
    """What is wrong with one part of a request: of its body at a JSON `pointer`, or with a `parameter` or header."""

    detail: str
    pointer: str | None = None
    parameter: str | None = None
    header: str | None = None


class ProblemController(Answer, frozen=True):
    """Who is the controller, as far as it is known."""

    id: int | None
    epoch: int


class Problem(Answer, frozen=True):
    """Why a request was refused, as of RFC 9457; `application/problem+json`.

    Attributes:
        error_code, error_name: Kafka's number and name for it.
        retriable: the same request may go through later.
    """

    type: str
    title: str
    status: int
    detail: str
    instance: str
    error_code: int
    error_name: str
    retriable: bool
    controller: ProblemController
    errors: tuple[FieldError, ...] = ()

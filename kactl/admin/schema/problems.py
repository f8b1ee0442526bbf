"""Errors, as application/problem+json."""

from .common import Answer


class FieldError(Answer, frozen=True, omit_defaults=True):
    """An error in one part of a request: in the body at a JSON `pointer`, in a `parameter`, or in a `header`."""

    detail: str
    pointer: str | None = None
    parameter: str | None = None
    header: str | None = None


class ProblemController(Answer, frozen=True):
    """The controller, as far as it is known; unknown (null, 0 and empty) to clients that may not use the route.

    `api_url`: its admin API; empty if it is not in `api.instances`.
    """

    id: int | None
    epoch: int
    api_url: str = ""


class Problem(Answer, frozen=True):
    """Error response of RFC 9457; `application/problem+json`.

    Attributes:
        error_code, error_name: Kafka's number and name of the error.
        retriable: the same request may succeed later.
        error_id: of an internal error, whose details are in the server's log under this id; otherwise empty.
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
    error_id: str = ""

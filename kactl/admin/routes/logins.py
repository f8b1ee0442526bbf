"""Logins of web pages: a ticket for a token, or for a code that `kactl dashboard` has made."""

from http import HTTPStatus

from kactl.admin.client import Known, forbidden, known_client
from kactl.admin.identity.credentials import Credentials
from kactl.admin.problem import Refused
from kactl.admin.route import ApiRequest
from kactl.admin.schema import Login, LoginCode, NoData
from kactl.admin.service import Service
from kactl.model.errors import ErrorCode


async def code(service: Service, _: ApiRequest[NoData, NoData, NoData]) -> LoginCode:
    """Return a code that logs in a page as the client of this request."""
    credentials, client = _own(service)
    return LoginCode(code=credentials.codes.make(client))


async def login(service: Service, _: ApiRequest[NoData, NoData, NoData]) -> Login:
    """Return a ticket for the client of this request."""
    credentials, client = _own(service)
    name = client.principal.name
    ticket, expires_ms = credentials.ticket_of_user(name) if client.token is None else credentials.ticket(client.token)
    return Login(ticket=ticket, principal=client.principal.label, role=client.role.label, expires_ms=expires_ms)


def _own(service: Service) -> tuple[Credentials, Known]:
    """Returns the credentials of the server, and the client.

    Raises:
        Refused: 501, the application of which this API is a part identifies clients; 403, the client has a ticket.
    """
    client = known_client()
    if service.credentials is None or client is None:
        raise Refused(
            HTTPStatus.NOT_IMPLEMENTED,
            "Not implemented",
            "this application identifies its clients itself: log in as it demands",
            code=ErrorCode.UNSUPPORTED_VERSION,
        )
    if client.way == "ticket":
        raise forbidden("a login cannot be extended by itself: log in with a token, or run `kactl dashboard`")
    return service.credentials, client

"""Which interfaces other machines can reach without encryption. Without the operator's consent, none is opened."""

from kactl.config.settings import Config
from kactl.errors import BadConfig
from kactl.runtime.addresses import is_local

API = "api"


def insecure(config: Config) -> tuple[str, ...]:
    """Returns the names of the interfaces that are open by consent.

    Raises:
        BadConfig: an interface is open without consent, or the consent has no reason any more. Nothing has been
            opened.
    """
    api = config.api
    is_open = not api.tls.cert and not is_local(api.address.host)
    allowed = config.security.allow_insecure
    unknown = next((name for name in allowed if name != API), None)
    if unknown is not None:
        raise BadConfig("security.allow-insecure", f'{unknown!r} is no interface that may be opened: there is "{API}"')
    if is_open and API not in allowed:
        raise BadConfig(
            "api.listen",
            f'"{api.listen}" can be reached by others and has no TLS: give [api.tls] cert and key, listen on '
            f'127.0.0.1, or name "{API}" in security.allow-insecure',
        )
    if not is_open and API in allowed:
        raise BadConfig("security.allow-insecure", f'"{API}" is secure: remove it, so that a later mistake is noticed')
    return (API,) if is_open else ()

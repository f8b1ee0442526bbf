"""TLS of outgoing connections, by the files that a configuration names."""

import ssl

from kactl.runtime.certificate_file import load_pair, unusable_authorities


def client_tls(section: str, *, ca: str, cert: str, key: str) -> ssl.SSLContext | None:
    """Returns settings that verify servers' certificates and names; None if no file is named.

    Args:
        section: of the configuration, for errors.
        ca: PEM file with the certificates of authorities; empty for those of the system.
        cert, key: PEM files of the client's own certificate; empty for none.

    Raises:
        BadConfig: a file cannot be read, or is something else.
    """
    if not ca and not cert:
        return None
    try:
        context = ssl.create_default_context(cafile=ca or None)
    except OSError as error:
        raise unusable_authorities(error, ca, f"{section}.ca") from None
    if cert:
        load_pair(context, cert, key, section)
    return context

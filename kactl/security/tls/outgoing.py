"""TLS of outgoing connections: the check of its settings, and the reasons of failures."""

import ssl

from kactl.model.errors import BadConfig


def require_verification(context: ssl.SSLContext | None) -> None:
    """Raises BadConfig if a context does not verify the server's certificate and its name."""
    if context is not None and not (context.check_hostname and context.verify_mode == ssl.CERT_REQUIRED):
        raise BadConfig(
            "tls", "does not verify the server's certificate and its name: use ssl.create_default_context(cafile=...)"
        )


def rejected_certificate(error: BaseException) -> str:
    """Returns why a server's certificate is not accepted; empty if the connection failed for another reason."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    return ""

"""Search for secrets in output, also in the forms that encoders give them, and for texts that look like secrets."""

import base64
import re
import urllib.parse
from collections.abc import Iterable, Mapping
from typing import Final

from kactl.security.access.tokens import CREDENTIAL

# What looks like a secret, whatever its value.
LOOKS: Final[dict[str, re.Pattern[bytes]]] = {
    "a PEM block": re.compile(rb"-----BEGIN [A-Z0-9 ]+-----(?:\\n|\s)+[A-Za-z0-9+/=]{16}"),
    "a credential of kactl": re.compile(CREDENTIAL.pattern.encode()),
    "a JSON web token": re.compile(rb"eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*"),
    "a key of a cloud or a code host": re.compile(rb"\b(?:AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{36})\b"),
    "a verifier of a password": re.compile(rb"stored_?key[\"']?\s*[=:]\s*[\"']?[A-Za-z0-9+/]{40}", re.IGNORECASE),
    "a password": re.compile(
        rb"(?i)\b(?:password|passphrase|passwd|secret|token|api[_-]?key)[\"']?\s*[=:]\s*[\"'](?=[^\"'\n]*[0-9])[^\s\"'{}<>$]{8,}[\"']"
    ),
}
# In encoded forms, which no pattern finds.
_PEM: Final = ("-----BEGIN CERTIFICATE-----", "-----BEGIN PRIVATE KEY-----", "-----BEGIN RSA PRIVATE KEY-----")


def forms(secret: str) -> dict[str, bytes]:
    """Returns the texts that betray a secret.

    Base64 depends on the position of the secret in what is encoded: of each of the three, the part that depends on the
    secret alone.
    """
    plain = secret.encode()
    found = {
        "plain": plain,
        "reversed": plain[::-1],
        "hex": plain.hex().encode(),
        "quoted": urllib.parse.quote(secret, safe="").encode(),
        "bytes": ", ".join(map(str, plain)).encode(),
    }
    for shift in range(3):
        encoded = base64.b64encode(bytes(shift) + plain)
        # The first character of a shifted secret, and the last of an incomplete group, depend on their neighbours too.
        begin = (0, 2, 3)[shift]
        end = (len(plain) + shift) // 3 * 4
        found[f"base64+{shift}"] = encoded[begin:end]
        found[f"base64url+{shift}"] = encoded[begin:end].replace(b"+", b"-").replace(b"/", b"_")
    return found


def leaks(secrets: Iterable[str], outputs: dict[str, bytes]) -> list[tuple[str, str, str]]:
    """Returns the secrets found: the name of the output, the secret, and its form."""
    return [
        (name, secret, form)
        for secret in secrets
        for form, text in forms(secret).items()
        for name, content in outputs.items()
        if text in content or (form == "hex" and text in content.lower())
    ]


def suspicions(contents: Mapping[str, bytes]) -> list[tuple[str, str, bytes]]:
    """Returns what looks like a secret: the name of the content, the kind of secret, and the text."""
    found = [
        (name, kind, matched[0])
        for name, content in contents.items()
        for kind, pattern in LOOKS.items()
        for matched in pattern.finditer(content)
    ]
    encoded = [
        (name, "an encoded PEM block", form.encode())
        for name, _, form in leaks(_PEM, dict(contents))
        if form != "plain"
    ]
    return found + encoded

"""Search for secrets in output, also in the forms that encoders give them."""

import base64
import urllib.parse
from collections.abc import Iterable


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

"""Secrets that do not appear in messages by accident."""

import hmac
from typing import Final, NoReturn, Self

_SHOWN: Final = "***"


class Secret:
    """A password, token or shared key. It shows itself as `***` and cannot be copied out, except by `reveal`.

    Formatting, pickling, encoding and hashing either show `***` or raise TypeError. Two secrets compare in a time that
    does not depend on their content.
    """

    __slots__ = ("_content",)

    def __init__(self, content: str | bytes) -> None:
        self._content = content.encode() if isinstance(content, str) else content

    @classmethod
    def of(cls, given: "Secret | str | bytes") -> "Secret":
        """Returns a secret that an application gave in any form."""
        return given if isinstance(given, Secret) else cls(given)

    def reveal(self) -> bytes:
        """Returns the content, to authenticate with. Do not store it."""
        return self._content

    def __bool__(self) -> bool:
        return bool(self._content)

    def __len__(self) -> int:
        return len(self._content)

    def __repr__(self) -> str:
        return _SHOWN

    def __str__(self) -> str:
        return _SHOWN

    def __format__(self, spec: str) -> str:
        return _SHOWN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._content, other._content)

    def __hash__(self) -> NoReturn:
        raise TypeError("a secret has no hash")

    def __iter__(self) -> NoReturn:
        raise TypeError("a secret has no parts")

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a secret cannot be pickled or copied")

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

"""Methods of a controller that fail once."""

from typing import Any

import pytest


def fail_once(
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    step: str,
    error: Exception | None = None,
    *,
    after: bool = False,
) -> list[Exception]:
    """Make the next call of an asynchronous method raise an error, before or after it is carried out.

    Args:
        error: an unexpected one by default.

    Returns:
        a list that has the error until it is raised.
    """
    real, left = getattr(owner, step), [error or ZeroDivisionError("a bug")]

    async def failing(self: Any, *arguments: Any, **options: Any) -> Any:
        if left and not after:
            raise left.pop()
        result = await real(self, *arguments, **options)
        if left:
            raise left.pop()
        return result

    monkeypatch.setattr(owner, step, failing)
    return left

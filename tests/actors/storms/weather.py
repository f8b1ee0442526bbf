"""Store with random failures."""

import random
from collections.abc import Awaitable, Callable
from typing import Any

from kactl.errors import StoreError, StoreUnavailable
from kactl.testing.points import STORE_CALLS


class Weather:
    """Lets calls of a store fail: before they take effect, after it, or by an internal error."""

    def __init__(self, dice: random.Random, rate: float) -> None:
        self.dice = dice
        self.rate = rate
        self.bugs: list[Exception] = []

    def over(self, store: Any) -> None:
        for name in STORE_CALLS:
            setattr(store, name, self._failing(getattr(store, name)))

    def _failing(self, real: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def call(*args: Any, **named: Any) -> Any:
            if not self.rate or self.dice.random() >= self.rate:
                return await real(*args, **named)
            if self.dice.random() < 0.4:
                await real(*args, **named)
                raise StoreUnavailable("the answer was lost")
            kinds = [StoreUnavailable("away"), StoreError("refused"), StoreUnavailable("away"), *self.bugs]
            raise self.dice.choice(kinds)

        return call

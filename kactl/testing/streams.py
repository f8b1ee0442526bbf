"""Named random streams of one seed."""

import hashlib
import random


class Streams:
    """Random streams that are independent of each other: a draw from one never changes the draws from another.

    Shrinking a script removes draws. With a stream per purpose, the rest of the run stays close to the original.

    Args:
        seed: determines all streams.
    """

    def __init__(self, seed: int | str) -> None:
        self.seed = seed
        self._streams: dict[str, random.Random] = {}

    def __getitem__(self, name: str) -> random.Random:
        """Returns the stream of a name: the same object for the same name."""
        if (stream := self._streams.get(name)) is None:
            digest = hashlib.blake2b(f"{self.seed}/{name}".encode(), digest_size=16).digest()
            stream = self._streams[name] = random.Random(int.from_bytes(digest, "big"))
        return stream

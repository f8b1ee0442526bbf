"""Recorded inputs of targets: a file for each target, with one input in Base64 in each line."""

import base64
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).with_name("corpus")


def recorded(target: str) -> list[bytes]:
    """Returns the recorded inputs of a target; none if there is no file."""
    path = FOLDER / f"{target.replace('/', ' ')}.txt"
    return [base64.b64decode(line) for line in path.read_text("ascii").split()] if path.exists() else []

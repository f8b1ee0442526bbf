"""Recorded bytes of every version of the protocol are decoded as the message that was encoded."""

import base64
from pathlib import Path
from typing import Any

import pytest

from kactl.decide.messages import control, following
from kactl.testing.contracts.network import plain_message
from kactl.transports.tcp import wire

from .recorded import FOLDER, samples


def comparable(message: Any) -> Any:
    if isinstance(message, control.Request | control.Response):
        return plain_message(message)
    if isinstance(message, following.FollowerReports):
        columns = (message.leader_epoch, message.position, message.caught_up)
        own = (message.follower, message.broker_epoch, message.leader, message.generation, message.base)
        return own, list(message.names), [column.tolist() for column in columns]
    return message


def recorded(file: Path) -> dict[str, bytes]:
    lines = (line.split("\t") for line in file.read_text().splitlines())
    return {name: base64.b64decode(data) for name, data in lines}


@pytest.mark.parametrize("file", sorted(FOLDER.iterdir()), ids=lambda file: file.stem)
def test_recorded_bytes_are_understood(file: Path) -> None:
    messages = samples()

    for name, data in recorded(file).items():
        family, message = messages[name]
        assert comparable(wire.decode(data, family)) == comparable(message), name

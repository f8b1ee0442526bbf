"""Docstrings of the public names begin with their recommended use, and signatures show what is awaited."""

import importlib
import inspect
from typing import Any

import pytest

import kactl

# Names with which a program begins. Values and errors are found from them.
ENTRIES = (
    "Controller",
    "ControllerSettings",
    "EtcdStore",
    "Leader",
    "LeaseConfig",
    "MemoryHub",
    "MemoryStore",
    "NotReady",
    "Participant",
    "Participants",
    "PartitionHandler",
    "Spectator",
    "SqliteStore",
    "TcpNetwork",
    "Tls",
    "fencing.HeaderFence",
    "fencing.PutIfMatch",
    "fencing.fenced",
    "fencing.headers",
)


def public(name: str) -> Any:
    package, _, own = name.rpartition(".")
    return getattr(importlib.import_module(f"kactl.{package}") if package else kactl, own)


@pytest.mark.parametrize("name", ENTRIES)
def test_docstring_begins_with_an_example(name: str) -> None:
    first, *_ = (inspect.getdoc(public(name)) or "").partition("\nArgs:")
    _, example, *others = first.split("\n\n")

    assert example.startswith("    ")
    assert name.rpartition(".")[2] in "".join((example, *others)) or name in ("Leader", "MemoryHub", "MemoryStore")


def test_help_of_a_participant_shows_a_handler_and_a_network() -> None:
    text = inspect.getdoc(kactl.Participant) or ""
    example = text[: text.index("Args:")]

    assert "PartitionHandler" in example
    assert "TcpNetwork(controllers=" in example
    assert "listener" not in example


@pytest.mark.parametrize("name", [name for name in kactl.__all__ if name not in ("AnyEvent",)])
def test_each_public_class_has_a_docstring_of_its_own(name: str) -> None:
    found = getattr(kactl, name)

    assert not inspect.isclass(found) or found.__dict__.get("__doc__")

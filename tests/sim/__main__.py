"""`python -m tests.sim`: the commands of the simulator."""

from .engine.cli import sim

sim(prog_name="python -m tests.sim")

"""`kactl completion`: scripts by which shells complete commands, options and their values."""

from typing import Final

import click
from click.shell_completion import ShellComplete, get_completion_class

from .common_options import Settings, with_options

SHELLS: Final = ("bash", "zsh", "fish")
# The variable by which the scripts call kactl back; the root command reads it.
_VARIABLE: Final = "_KACTL_COMPLETE"


@click.command(short_help="Print a script that completes commands in a shell.")
@click.argument("shell", type=click.Choice(SHELLS))
@with_options((), server=False)
def completion(_: Settings, *, shell: str) -> None:
    """Print a script that completes commands, options and their values in a shell.

    \b
      bash    eval "$(kactl completion bash)"      in ~/.bashrc
      zsh     eval "$(kactl completion zsh)"       in ~/.zshrc, after compinit
      fish    kactl completion fish >~/.config/fish/completions/kactl.fish
    """
    click.echo(script(shell), nl=False)


def script(shell: str) -> str:
    """Returns the script of a shell."""
    kind = get_completion_class(shell)
    assert kind is not None, "one of SHELLS"
    made = kind(click.get_current_context().find_root().command, {}, "kactl", _VARIABLE)
    # Not the method of the class for bash: it runs the bash of this machine, which may not be the one that reads this.
    return ShellComplete.source(made)

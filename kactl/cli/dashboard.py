"""`kactl dashboard`: open the dashboard in a browser, logged in."""

import sys

import click

from kactl.admin.schema import LoginCode, NoData

from .common_options import Settings, with_options


@click.command(short_help="Open the dashboard in a browser, logged in.")
@click.option("--print", "only_print", is_flag=True, help="Print the address instead of opening it.")
@with_options(())
def dashboard(settings: Settings, *, only_print: bool) -> None:
    """Open the dashboard in a browser, with the identity and the role of this command.

    The address logs in one page and expires after a minute; the login lasts 8 hours at most. Without a display, or
    with --print, the address is printed: open it on this machine.
    """
    made = settings.api.post("/v1/login-codes", NoData(), LoginCode)
    address = f"{settings.server.rstrip('/')}/#login={made.code}"
    if only_print or not _opened(address):
        click.echo(address)
        settings.note("The address logs in one page, within a minute.")


def _opened(address: str) -> bool:
    """Open an address in a browser with a window. Returns whether there is one."""
    if not sys.stdout.isatty():
        return False
    import webbrowser

    try:
        found = webbrowser.get()
    except webbrowser.Error:
        return False
    # A generic one runs in the terminal, without scripts.
    return type(found) is not webbrowser.GenericBrowser and found.open(address)

"""`kactl context`: names for servers, and what commands present to them."""

import os
import sys

import click
import msgspec

from . import context_file, output
from .api_client import checked_url
from .common_options import Settings, changes_host, local_options, with_options
from .context_file import Context, Contexts
from .exits import Exit, Failure
from .output import NONE


@click.group()
def context() -> None:
    """Name servers, and choose the one that commands use."""


@context.command("list")
@local_options
def list_(settings: Settings) -> None:
    """List the contexts. Tokens are not shown."""
    contexts = context_file.load()
    items = [_shown(name, each, contexts) for name, each in sorted(contexts.contexts.items())]
    if settings.printed(items, items):
        return
    rows = [("*" if item["current"] else "", item["name"], item["server"], item["token"] or NONE) for item in items]
    output.print_lines(line.rstrip() for line in output.table(("CURRENT", "NAME", "SERVER", "TOKEN"), rows))
    if not items:
        settings.note("There are no contexts: add one with `kactl context add NAME --server URL`.")


@context.command()
@local_options
def current(settings: Settings) -> None:
    """Show the current context, which commands use that name none."""
    contexts = context_file.load()
    if not contexts.current:
        raise Failure("there is no current context: choose one with `kactl context use NAME`")
    item = _shown(contexts.current, contexts.named(contexts.current), contexts)
    if not settings.printed(item):
        output.print_lines([f"{item['name']}{output.GAP}{item['server']}"])


@context.command(short_help="Make a context the current one.")
@click.argument("name")
@changes_host
@with_options((), server=False)
def use(settings: Settings, *, name: str, dry_run: bool) -> None:
    """Make a context the current one, which commands use that name none."""
    contexts = context_file.load()
    server = contexts.named(name).server
    if not dry_run:
        context_file.save(msgspec.structs.replace(contexts, current=name))
    settings.finish(f"make {name} the current context", f"Commands use {server} from now on.", dry_run=dry_run)


@context.command(short_help="Add a context.")
@click.argument("name")
@click.option("--server", required=True, metavar="URL", help="Server of the context.")
@click.option("--token-file", metavar="FILE", help="File with the token to present; it stays where it is.")
@click.option("--token-stdin", is_flag=True, help="Read the token from standard input, and keep it in the context.")
@click.option("--ca-file", metavar="FILE", default="", help="Authority of the server's certificate.")
@click.option("--cert", metavar="FILE", default="", help="Certificate to present, in place of a token.")
@click.option("--key", metavar="FILE", default="", help="Key of the certificate.  [in the same file]")
@click.option("--origin", "origins", multiple=True, metavar="URL", help="Server that it may redirect to; repeatable.")
@click.option("--use", "is_current", is_flag=True, help="Make it the current context.")
@click.option("--force", is_flag=True, help="Replace a context of this name.")
@changes_host
@with_options((), server=False)
def add(
    settings: Settings,
    *,
    name: str,
    server: str,
    token_file: str | None,
    token_stdin: bool,
    ca_file: str,
    cert: str,
    key: str,
    origins: tuple[str, ...],
    is_current: bool,
    force: bool,
    dry_run: bool,
) -> None:
    """Add a context. The file with all contexts has mode 0600.

    \b
      kactl context add prod --server https://kactl1.example:8443 --token-file ~/prod.token --use
      kactl context add test --server https://test.example:8443 --token-stdin <test.token
    """
    contexts = context_file.load()
    if name in contexts.contexts and not force:
        raise Failure(f"context {name!r}: exists: choose another name, or replace it with --force", Exit.USAGE)
    if token_stdin and token_file:
        raise click.UsageError("specify either --token-file or --token-stdin, not both")
    if key and not cert:
        raise click.UsageError("specify --cert with --key")
    if token_file:
        from .credentials import secret

        secret(token_file, "--token-file")
    urls = [checked_url(url if "://" in url else f"http://{url}") for url in (server, *origins)]
    added = Context(
        server=urls[0],
        token_file=token_file or "",
        token=_from_stdin() if token_stdin and not dry_run else "",
        ca=ca_file,
        cert=cert,
        key=key,
        origins=tuple(urls[1:]),
    )
    chosen = name if is_current else contexts.current
    path = context_file.path_of(os.environ)
    if not dry_run:
        context_file.save(Contexts(current=chosen, contexts={**contexts.contexts, name: added}))
    settings.finish(f"add context {name} to {path}", f"Added context {name} to {path}.", dry_run=dry_run)


@context.command()
@click.argument("name")
@changes_host
@with_options((), server=False)
def remove(settings: Settings, *, name: str, dry_run: bool) -> None:
    """Remove a context. Its token stays valid; see `kactl token revoke`."""
    contexts = context_file.load()
    contexts.named(name)
    left = {each: value for each, value in contexts.contexts.items() if each != name}
    chosen = "" if contexts.current == name else contexts.current
    if not dry_run:
        context_file.save(Contexts(current=chosen, contexts=left))
    removed = f"Removed context {name}." + (" There is no current context now." if not chosen else "")
    settings.finish(f"remove context {name}", removed, dry_run=dry_run)


def _shown(name: str, context: Context, contexts: Contexts) -> dict[str, str | bool]:
    token = context.token_file or ("in the context" if context.token else context.cert)
    return {"name": name, "server": context.server, "token": token, "current": name == contexts.current}


def _from_stdin() -> str:
    token = sys.stdin.readline().strip()
    if not token:
        raise Failure("--token-stdin: the first line of standard input is empty: write the token there", Exit.USAGE)
    return token

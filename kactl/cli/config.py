"""`kactl config`: validate and show a configuration, and its schema, without starting a server."""

from typing import Any, Final

import click
import msgspec

from . import output
from .common_options import Settings, local_options, with_options
from .toml_text import toml_lines

FILE_DEFAULT: Final = "kactl.toml"
_file = click.argument("file", default=FILE_DEFAULT)


@click.group()
def config() -> None:
    """Check a configuration, or show its effective values or its schema."""


@config.command()
@_file
@with_options((), server=False)
def validate(settings: Settings, *, file: str) -> None:
    """Validate FILE and the overrides of the environment. The default of FILE is kactl.toml.

    A file whose store is not ZooKeeper is for `kactl up`, and needs no node-id.
    """
    from .up import served_config

    served_config(file)
    settings.note(f"{file}: the configuration is valid.")


@config.command()
@_file
@click.option("--up", "for_up", is_flag=True, help="Use the defaults of `kactl up`.")
@local_options
def show(settings: Settings, *, file: str, for_up: bool) -> None:
    """Show all effective values, in TOML. The default of FILE is kactl.toml."""
    from . import up
    from .setup import read_config

    values = _plain(up.read_config(file, {}) if for_up else read_config(file))
    if not settings.printed(values):
        output.print_lines(toml_lines(values))


@config.command(short_help="Show the JSON Schema of configuration files.")
@with_options(("json", "yaml"), server=False)
def schema(settings: Settings) -> None:
    """Show the JSON Schema of configuration files, by which editors complete and check them."""
    from kactl.config.json_schema import json_schema

    output.print_data(settings.form(), json_schema())


def _plain(section: msgspec.Struct) -> dict[str, Any]:
    """Returns a section as in a file: keys with dashes, durations with units, unset values omitted."""
    from kactl.config.values import Duration

    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(section):
        value = getattr(section, field.name)
        if isinstance(value, msgspec.Struct):
            values[field.encode_name] = _plain(value)
        elif value is not None:
            values[field.encode_name] = f"{int(value)}ms" if isinstance(value, Duration) else value
    return values

"""Generated pages: each is a function that returns Markdown, made from the code that it describes."""

from .api import api_page
from .cli import cli_page
from .configuration import configuration_page
from .decisions import decisions_page
from .events import events_page
from .examples import examples_page
from .python_api import python_page

__all__ = [
    "api_page",
    "cli_page",
    "configuration_page",
    "decisions_page",
    "events_page",
    "examples_page",
    "python_page",
]

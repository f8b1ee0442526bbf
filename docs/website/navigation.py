"""Navigation of the site: groups of pages, in reading order. Each page is in exactly one group."""

from typing import Final, NamedTuple


class Group(NamedTuple):
    """Part of the navigation. A page is named by its place in the site, without `.md`."""

    title: str
    pages: tuple[str, ...]


NAVIGATION: Final = (
    Group(
        "Tutorials",
        ("tutorials/embed", "tutorials/operate", "tutorials/measure", "tutorials/investigate", "simulation"),
    ),
    Group(
        "How-to guides",
        (
            "participants",
            "operating",
            "walk-through",
            "how-to/restart-brokers",
            "how-to/remove-a-broker",
            "how-to/back-up-and-restore",
            "runbook",
            "security",
            "how-to/examples",
            "stores",
            "networks",
            "how-to/benchmarks",
        ),
    ),
    Group(
        "Reference",
        (
            "reference/cli",
            "reference/configuration",
            "reference/api",
            "reference/events",
            "metrics",
            "promises",
            "reference/python",
            "forensics",
            "state-machines",
            "compatibility",
        ),
    ),
    Group(
        "Explanation",
        (
            "architecture",
            "failures",
            "differences",
            "limits",
            "performance",
            "decisions/index",
        ),
    ),
    Group(
        "Evidence",
        ("evidence/reliability", "evidence/stories", "evidence/security-requirements", "evidence/track-record"),
    ),
    Group("Project", ("project/changelog", "project/reporting", "project/contributing")),
)


def tables_of_contents() -> str:
    """Returns Sphinx's description of the navigation, which the start page needs."""
    return "\n\n".join(
        "\n".join(("```{toctree}", ":hidden:", f":caption: {group.title}", "", *group.pages, "```"))
        for group in NAVIGATION
    )

"""Sphinx's configuration. `python -m docs.website` writes the sources and runs Sphinx with this file."""

from importlib import metadata

project = "kactl"
author = "The kactl authors"
copyright = author
version = release = metadata.version("kactl")
language = "en"

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
# Anchors for the headings of all levels, named as on code hosting sites.
myst_heading_anchors = 6
# Options such as --dry-run keep their dashes.
smartquotes = False
# A page of a session shows the prompt and the output.
highlight_language = "text"

html_theme = "furo"
html_title = f"kactl {release}"
html_static_path = ["static"]
html_css_files = ["kactl.css"]
html_js_files = ["folder.js"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_domain_indices = False
html_use_index = False

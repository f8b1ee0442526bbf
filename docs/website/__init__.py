"""Documentation site: pages of the repository and references generated from the code, built by Sphinx.

    the tree ─ staging ─▶ Markdown in one folder ─ Sphinx ─▶ HTML without external files
                              ▲
    the code ─ references ────┘

`python -m docs.website FOLDER` builds it. Nothing is fetched, and each warning ends the build.
"""

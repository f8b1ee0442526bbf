"""The report on an incident: what the jobs found, as one page that a manager reads from the top and an engineer below.

    jobs' tables ─ scope ─▶ of what was asked ─ collect ─▶ Facts ─┬─ words, advice ─▶ sentences ─┬─▶ page (HTML)
                                  ▲                               └─ pictures ─────▶ SVG ────────┤
                              incidents                                                          └─▶ markdown

`collect.py` asks Spark and gets sums, percentiles and the worst twenty of everything: what it brings is of a size that
does not depend on how much was lost. All that follows is plain values, and needs no Spark.
"""

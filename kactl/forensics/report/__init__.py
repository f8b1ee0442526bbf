"""Report on an incident: one page with a summary at the top and the evidence below.

    jobs' tables ─ scope ─▶ requested rows ─ collect ─▶ Facts ─┬─ summary, limits, advice ─▶ sentences ─┬─▶ page (HTML)
                               ▲                               ├─ sections of a question ──▶ tables ────┤
                           incidents                           └─ pictures ────────────────▶ SVG ───────┴─▶ markdown

`collect` queries Spark for sums, percentiles and the worst twenty rows of each kind: the size of its result does not
depend on how much was lost. All later steps use plain values and need no Spark.
"""

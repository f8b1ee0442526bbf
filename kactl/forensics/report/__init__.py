"""Report on an incident: one page with a summary at the top and the evidence below.

    jobs' tables ─ scope ─▶ requested rows ─ collect ─▶ Facts ─┬─ summary, limits, advice ─▶ sentences ─┬─▶ page (HTML)
                               ▲                               ├─ sections of a question ──▶ tables ────┤
                           incidents                           └─ pictures ────────────────▶ SVG ───────┴─▶ markdown

`collect` queries Spark for sums, percentiles and the worst twenty rows of each kind: the size of its result does not
depend on how much was lost. All later steps use plain values.

Each question has one module with its queries and its section: `losses`, `objectives`, `sources`, `other_findings` and
`next_failures`. Incidents have several: `incidents` groups failures, `outages` queries them, and `incident_sections`
and `pictures` show them. Values are in `model`, `findings` and `facts`; `svg` is the engine of all pictures.
"""

"""Forensics on Spark: read the logs of a cluster, analyse them, report incidents.

    files ─ text/ ─▶ events ─┬─▶ named jobs ─▶ tables ─▶ report
                  ingest     └─▶ files: kind, period and coverage of each file

`events.py` defines the single table of events, which is independent of the log format. `ingest.py` writes the tables;
`tables.py` opens them.
"""

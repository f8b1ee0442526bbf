"""Forensics on Spark: logs and events in, answers out.

    files ─ text/ ─▶ events ─┬─▶ named jobs ─▶ tables ─▶ report
                  ingest     └─▶ files: what each file can tell

`events.py` is the one table of events, whatever they were read from; `tables.py` opens what `ingest.py` has written.
"""

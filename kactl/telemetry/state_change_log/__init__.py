"""kactl's own state-change log: the events of the event log, kept in files of bounded size.

    event log ─keep─▶ lines, in JSON or in Kafka's format ─▶ segments

`kactl forensics ingest` reads both formats.
"""

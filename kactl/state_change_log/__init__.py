"""kactl's own state-change log: what happened, kept in files for as long as they have room.

    the controller's history ─keep─▶ lines, in JSON or as Kafka writes them ─▶ segments

`kactl forensics ingest` reads both.
"""

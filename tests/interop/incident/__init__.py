"""Incidents of real brokers under their own controller, measured by clients and reconstructed from the logs.

    story ─▶ brokers, their logs ─▶ kactl forensics ─▶ tables ─┐
         └─▶ prober, writers, disks ─▶ measured facts ─────────┴─▶ do they agree?

The measured facts do not use logs. Availability is requested continuously from every broker. A lost record was
acknowledged and is no longer in the log. The length of a dead leader's log is read from its disk.
"""

"""A bad day of real brokers under their own controller, told by clients, and then by their logs.

    story ─▶ brokers, their logs ─▶ kactl forensics ─▶ tables ─┐
         └─▶ prober, writers, disks ─▶ what really was ────────┴─▶ do they agree?

Nobody here takes anything from a log: who could be used when is asked of every broker, all the time; what was lost is
what was acknowledged and is no longer there; how much a dead leader had stands on its disk.
"""

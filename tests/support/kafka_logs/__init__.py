"""Synthetic logs of a cluster whose complete history is known; `bench.forensics` measures with them too.

    incidents ─▶ control ─▶ brokers ─▶ cluster: who holds which records
                    │           │          │
                    └───────────┴─ lines ─▶ journals: the logs        truth: what really happened

`cluster.py` is the cluster as it is, records and all; `zookeeper.py` (on top of `topics.py`, `leaderships.py` and
`requests.py`) and `quorum.py` are its controllers, and `brokers.py` does what they say. All of them have it written by
`journal.py` as a process of its version would, on that machine's clock. `incidents.py` lets things go wrong;
`generate.py` is the door.
"""

"""Synthetic logs of a cluster with a completely known history; `bench.forensics` measures with them too.

    incidents ─▶ controller ─▶ brokers ─▶ cluster: the records of each replica
                    │             │          │
                    └─────────────┴─ lines ─▶ journals: the logs        truth: the history

`cluster.py` is the state of the cluster, including its records. `zookeeper.py` (on top of `topics.py`, `leaderships.py`
and `requests.py`) and `quorum.py` are its controllers, and `brokers.py` follows their requests. `journal.py` writes the
lines of each process in the format of its version, with the times of its machine's clock. `incidents.py` causes
failures, and `generate.py` is the entry point.
"""

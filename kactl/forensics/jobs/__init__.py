"""The jobs: events in, one answer each out, as DataFrames that build on each other.

    events ─▶ skew, lives ─▶ timed ─┬─▶ states ─▶ leadership ─┬─▶ outages, unclean, churn
                                    ├─▶ absences ─────────────┘
                                    ├─▶ turns ─▶ losses
                                    ├─▶ audit, flapping
                                    └─▶ controllers, requests, deletions, reassignments

Each module has its job: a function of DataFrames, and the columns of what it returns. `catalog.py` knows them all,
`running.py` runs them and keeps what they return beside the events.
"""

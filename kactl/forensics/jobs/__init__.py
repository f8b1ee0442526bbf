"""Jobs that compute one table each from the events, as DataFrames that build on each other.

    events ─▶ skew, lives ─▶ timed ─┬─▶ states ─▶ leadership ─┬─▶ outages, unclean, churn
                                    ├─▶ absences ─────────────┘
                                    ├─▶ turns ─▶ losses
                                    ├─▶ audit, flapping
                                    └─▶ controllers, requests, deletions, reassignments

A job is a function of DataFrames plus the columns of its result. Most jobs are a module; `audit`, `losses`, `outages`
and `unclean` are folders. `catalog` lists all jobs, `running` runs them and stores their results beside the events. The
table `lives` is computed by `topic_incarnations`, the table `turns` by `log_segments`.
"""

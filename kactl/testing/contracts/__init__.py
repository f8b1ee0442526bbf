"""Contract suites of the parts that users may write: stores, networks, and handlers of partitions. They need pytest.

The suites are test classes for a test module of the user's own, which adds one fixture. They are shipped with kactl, so
that a store or a transport in another package is held to the same behaviour as kactl's own.
"""

import pytest

# Suites are no test modules: without this, pytest does not rewrite their assertions.
pytest.register_assert_rewrite(
    *(
        f"{__name__}.{module}"
        for module in (
            "links",
            "network",
            "participants",
            "store_brokers",
            "store_changes",
            "store_controllership",
            "store_deletion",
            "store_features",
            "store_leadership",
            "store_maintenance",
            "store_remote_sessions",
            "store_requests",
            "store_support",
            "store_topics",
        )
    )
)

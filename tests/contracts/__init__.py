"""What every store and every transport must keep, run over each of them."""

import pytest

# The suites are no test modules themselves; without this their assertions would say nothing when they fail.
pytest.register_assert_rewrite("tests.contracts.store_contract", "tests.contracts.transport_contract")

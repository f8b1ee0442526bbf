"""Contract suites that every store and every transport passes."""

import pytest

# The suites are not test modules: without this, pytest does not rewrite their assertions.
pytest.register_assert_rewrite("tests.contracts.store_contract", "tests.contracts.transport_contract")

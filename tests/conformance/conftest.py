"""Obligations are asserted in the package; their assertions are rewritten as a test's are."""

import pytest

pytest.register_assert_rewrite("landed.conformance")

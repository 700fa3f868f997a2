from tests.shared_state import shared_states  # noqa: F401  # a fixture

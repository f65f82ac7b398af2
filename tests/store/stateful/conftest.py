import pytest

# The machine is not a test module, but its assertions should also show what they compared.
pytest.register_assert_rewrite("tests.store.stateful.machine")

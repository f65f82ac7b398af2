import pytest

# The machine is no test module, but its assertions should show what they compared all the same.
pytest.register_assert_rewrite("tests.store.stateful.machine")

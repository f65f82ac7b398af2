"""A module that cannot be imported, for a reason of its own."""

import missing_library  # type: ignore[import-not-found]  # noqa: F401

"""A plain model of the store contract: dicts of immutable records, no SQL, no I/O, one page per verb.

The stateful test holds every store to it. It is written to be obviously right, not to be fast: a refused Commit, for
example, is undone by putting back a copy of everything.
"""

from tests.store.stateful.oracle.oracle import Oracle

__all__ = ["Oracle"]

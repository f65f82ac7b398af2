"""The server from which tests fork processes: it has imported once what each of them needs.

There is one for each process of the tests, and what is set last counts. So everything that is asked for is collected
here: a list of one module's own would take away that of another.
"""

from __future__ import annotations

import multiprocessing
from typing import Final

CONTEXT: Final = multiprocessing.get_context("forkserver")

_wanted: dict[str, None] = {}


def preload(*modules: str) -> None:
    """Have these imported before anything is forked. None of them may start a thread."""
    _wanted.update(dict.fromkeys(modules))
    CONTEXT.set_forkserver_preload(list(_wanted))

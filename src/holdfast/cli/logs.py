"""What a worker says on stderr while it works."""

from __future__ import annotations

import logging


def log_to_stderr(*, quiet: bool, verbose: bool) -> None:
    """Show the life of tasks, with the time; unless the application has set up logging, which then decides.

    ``quiet`` leaves warnings; ``verbose`` adds what the application itself tells.
    """
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING, format="%(asctime)s %(levelname)s %(message)s"
    )
    level = logging.WARNING if quiet else logging.DEBUG if verbose else logging.INFO
    logging.getLogger("holdfast").setLevel(level)

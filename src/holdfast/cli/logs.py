"""What a worker logs to stderr while it works: lines for people, or one JSON object for each line."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

from holdfast.cli.render.words import safe
from holdfast.cli.terminal import json_text, print_message
from holdfast.model.task import JsonValue

FIELDS = ("task_id", "from_state", "to_state", "reason", "step")
"""Fields that the engine adds to its log records."""


class SafeFormatter(logging.Formatter):
    """Lines for a terminal: messages of errors may contain characters that move its cursor."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record without such characters."""
        return safe(super().format(record))


class JsonFormatter(logging.Formatter):
    """One JSON object for each record: time, level, logger, message, and the engine's own fields where there are."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line."""
        line: dict[str, JsonValue] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name in FIELDS:
            if (value := getattr(record, name, None)) is not None:
                line[name] = value if isinstance(value, str | int | float) else str(value)
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        elif record.exc_text:  # redacted already
            line["traceback"] = record.exc_text
        return json_text(line, visible=sys.stderr.isatty())


class ProblemPrinter(logging.Handler):
    """Prints what a person should look at; not the moves of tasks, which the screen shows already."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print the record, if it is trouble."""
        if record.levelno >= logging.WARNING and not hasattr(record, "to_state"):
            print_message(record.getMessage())


def print_problems() -> None:
    """Print the engine's warnings and errors about a task that runs here."""
    logger = logging.getLogger("holdfast")
    logger.addHandler(ProblemPrinter())
    logger.propagate = False


def log_to_stderr(*, quiet: bool, verbose: bool, as_json: bool = False) -> None:
    """Show the life of tasks, with the time; unless the application has set up logging, which then decides.

    ``quiet`` leaves warnings; ``verbose`` adds what the application itself logs. With ``as_json`` every record is
    written as JSON, also by the application's own handlers: the reader asked for JSON only.
    """
    root = logging.getLogger()
    if not root.handlers:
        lines = logging.StreamHandler()
        lines.setFormatter(SafeFormatter("%(asctime)s %(levelname)s %(message)s"))
        root.addHandler(lines)
        root.setLevel(logging.INFO if verbose else logging.WARNING)
    if as_json:
        for handler in root.handlers:
            handler.setFormatter(JsonFormatter())
    level = logging.WARNING if quiet else logging.DEBUG if verbose else logging.INFO
    logging.getLogger("holdfast").setLevel(level)

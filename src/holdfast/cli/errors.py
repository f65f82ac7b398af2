"""Errors as a terminal shows them: one line that says what is wrong and what to do; a traceback only with --debug."""

from __future__ import annotations

import itertools
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from io import TextIOWrapper

from holdfast.cli.exits import ExitCode, exit_code
from holdfast.cli.render.words import safe
from holdfast.cli.terminal import close_stdout, print_message
from holdfast.model.errors import HoldfastError, StateConflict, StoreUnavailable
from holdfast.redaction import know_url, redacted

_CALL = re.compile(
    r"hold\.(approvals|approve|reject|answer|doubts|resolve|resume|retry|cancel|fork|submit|send)\(('[^']*')?[^)]*\)"
)
"""How the library's messages name a verb. In a shell the command is shown instead."""

debug = False
"""Set by --debug."""

_DATABASE = re.compile(r"postgres|jdbc:|mysql:|sqlite:|\bhost=|://[^\s/?#]*@", re.IGNORECASE)
"""Parts of a database's address, also of a mistyped one."""


def run(app: Callable[[], None]) -> None:
    """Run the application, and exit with the code for how it ended. --debug may stand anywhere."""
    _prepare_streams()
    if "--debug" in sys.argv:
        sys.argv.remove("--debug")
        show_tracebacks(wanted=True)
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)
    except SystemExit as ended:
        # The reader has closed the pipe, as in `holdfast list | head`. Typer makes a failure of that.
        if not isinstance(ended.__context__, BrokenPipeError):
            raise
        close_stdout()
        sys.exit(ExitCode.OK)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is shown
        if debug:
            text = "".join(traceback.format_exception(error))
            sys.stderr.write(safe(text) if sys.stderr.isatty() else text)
            sys.exit(ExitCode.FAILURE)
        print_message(_in_words(error))
        if isinstance(error, OSError):
            close_stdout()
        sys.exit(exit_code(error) if isinstance(error, HoldfastError) else ExitCode.FAILURE)


def _prepare_streams() -> None:
    if sys.stdout is None:  # closed, as by >&-: a write has to fail, not to vanish
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # characters that the terminal cannot show become question marks
            stream.reconfigure(errors="replace")
    _know_databases(sys.argv[1:])  # an error message repeats an unexpected word
    if isinstance(sys.stderr, TextIOWrapper):
        sys.stderr = _Words(sys.stderr)


def _know_databases(words: Sequence[str]) -> None:
    """Make the passwords of databases known. Other words are data: keys and inputs of tasks must stay what they are."""
    for before, word in itertools.pairwise(("", *words)):
        option, equals, value = word.partition("=")
        if before == "--database-url" or _DATABASE.search(word):
            know_url(word)
        elif equals and option == "--database-url":
            know_url(value)


class _Words(TextIOWrapper):
    """Stderr, for this command and its libraries: known credentials are removed.

    Not from stdout: it is for data, as it is stored.
    """

    def __init__(self, stream: TextIOWrapper) -> None:
        super().__init__(stream.buffer, stream.encoding, "replace", line_buffering=True)
        self._stream = stream  # keeps the file open

    def write(self, text: str) -> int:
        """Write the text, redacted."""
        super().write(redacted(text))
        return len(text)


def _in_words(error: Exception) -> str:
    if isinstance(error, HoldfastError):
        return in_one_line(error)
    if isinstance(error, OSError):  # such as a stdout that cannot be written
        return f"cannot go on: {error.strerror or error}" + (f" ({error.filename})" if error.filename else "")
    return f"{type(error).__name__}: {error}; that is a defect of Holdfast: report it with what --debug shows"


def in_one_line(error: HoldfastError) -> str:
    """Return the message as a user of the shell needs it: commands instead of Python calls, in one line."""
    words = _CALL.sub(_as_command, str(error))
    if isinstance(error, StateConflict):
        words = words.partition(" Look at ")[0]
    if isinstance(error, StoreUnavailable):
        words += "; see that the database runs and that the URL is right: `holdfast doctor` looks closer"
    noted = getattr(error, "__notes__", [])  # what a command has to add
    return " ".join("; ".join([words, *noted]).split())


def _as_command(call: re.Match[str]) -> str:
    verb, identifier = call[1], (call[2] or "").strip("'")
    option = "--deadline SPAN" if "deadline=" in call[0] else ""
    return f"`{' '.join(filter(None, ('holdfast', verb, identifier, option)))}`"


def show_tracebacks(wanted: bool) -> None:  # noqa: FBT001 - how typer calls it
    """Remember --debug."""
    global debug  # noqa: PLW0603 - one process, one command
    debug = debug or wanted

"""Asking before something happens. There are two rules, one for losses and one for decisions.

A command that can lose something by mistake (cancel, prune, forget, many tasks at once) always asks: without a terminal
it needs ``--yes``. A decision names one id, which no script types by mistake: a script decides without a question. Only
a person at a terminal, who may have pasted the wrong id, sees what it is about and is asked.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout

import typer
from rich.console import RenderableType

from holdfast.cli.exits import ExitCode
from holdfast.cli.terminal import print_message, words
from holdfast.model.errors import InvalidValue


def ask(question: str, *about: RenderableType, yes: bool) -> None:
    """Show what it is about, and ask; without a terminal and ``--yes`` refuse."""
    for part in about:
        words().print(part)
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidValue(f"{question} There is no terminal to ask on: add --yes; nothing was changed")
    with _conversation():
        agreed = typer.confirm(f"{question} Go on?", err=True)
    if not agreed:
        print_message("nothing was changed")
        raise typer.Exit(ExitCode.FAILURE)


def ask_person(question: str, *about: RenderableType, yes: bool) -> None:
    """Show a person at a terminal what it is about, and ask; a script goes on."""
    if sys.stdin.isatty() and not yes:
        ask(question, *about, yes=yes)


@contextmanager
def _conversation() -> Iterator[None]:
    """Keep stdout for data, and let Ctrl-C end the question at once.

    ``input`` writes to stdout, and the event loop would only remember the Ctrl-C until the answer comes.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with redirect_stdout(sys.stderr):
            yield
    except typer.Abort:
        typer.echo(err=True)
        print_message("nothing was changed")
        raise KeyboardInterrupt from None
    finally:
        signal.signal(signal.SIGINT, before)

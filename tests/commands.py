"""The commands of ``holdfast``, built once for all tests of a process, and the way to call one without a process.

Typer reads the signatures of all commands whenever it is called for one: most of the time that a short command takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import typer
import typer.main
import typer.testing

from holdfast.cli.application import app

_build = typer.main.get_command
_COMMANDS = _build(app)


def get_command(typer_instance: typer.Typer) -> Any:  # noqa: ANN401 - a class of Typer's own
    return _COMMANDS if typer_instance is app else _build(typer_instance)


typer.testing._get_command = get_command  # type: ignore[attr-defined]


def invoke(words: Sequence[str], *, env: Mapping[str, str], catch_exceptions: bool = True) -> typer.testing.Result:
    """Run ``holdfast`` with these words in this process."""
    return typer.testing.CliRunner().invoke(app, words, env=env, catch_exceptions=catch_exceptions)

"""Help in plain words: TEXT where a value is wanted, nothing beside a flag. Typer names the types of Python there."""

from __future__ import annotations

import enum
import inspect
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer.core import TyperArgument, TyperCommand, TyperGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_WORDS = {int: "NUMBER", float: "NUMBER", Path: "PATH"}


class PlainCommand(TyperCommand):
    """A command that is explained in plain words."""

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - the classes of typer's own parser
        """Write the help."""
        _make_plain(self, ctx)
        super().format_help(ctx, formatter)


class PlainGroup(TyperGroup):
    """A group of commands that is explained in plain words."""

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - see PlainCommand
        """Write the help."""
        _make_plain(self, ctx)
        super().format_help(ctx, formatter)


def value_word(parameter: Any, types: Mapping[str, Any]) -> str:  # noqa: ANN401 - see PlainCommand
    """Return the word for the value of an option, by its annotation; none for a flag, and for an argument its own."""
    if parameter.metavar is not None:
        return str(parameter.metavar)
    if isinstance(parameter, TyperArgument) or parameter.is_flag or parameter.count:
        return ""
    found = [kind for kind in typing.get_args(types.get(parameter.name)) if kind is not type(None)]
    kind = (found or [types.get(parameter.name, str)])[0]
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return "|".join(str(member.value) for member in kind)
    return _WORDS.get(kind, "TEXT")


def types_of(callback: Callable[..., Any] | None) -> dict[str, Any]:
    """Return the annotations of what a command calls, by the names of its parameters."""
    return {} if callback is None else typing.get_type_hints(inspect.unwrap(callback))


def _make_plain(command: TyperCommand | TyperGroup, ctx: Any) -> None:  # noqa: ANN401 - see PlainCommand
    """Change what the help is made of; nothing comes after it that would look at it once more."""
    types = types_of(command.callback)
    for parameter in command.get_params(ctx):
        if isinstance(parameter, TyperArgument):
            parameter.display_type_rich = _nothing  # type: ignore[method-assign]  # beside its name
        else:
            parameter.metavar = value_word(parameter, types)


def _nothing(ctx: object) -> None:
    del ctx

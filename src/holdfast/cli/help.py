"""Help in plain words: TEXT for a value, nothing for a flag. Typer would show Python's types there."""

from __future__ import annotations

import enum
import inspect
import typing
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer.core import TyperArgument, TyperCommand, TyperGroup

from holdfast.redaction import redacted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_WORDS = {int: "NUMBER", float: "NUMBER", Path: "PATH"}


@contextmanager
def _redacting() -> Iterator[None]:
    """Redact an error message before it is framed: a credential that is broken over two lines is not found."""
    try:
        yield
    except Exception as error:
        if isinstance(words := getattr(error, "message", None), str):
            error.message = redacted(words)  # type: ignore[attr-defined]
        raise


class PlainCommand(TyperCommand):
    """A command that is explained in plain words."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - as the parser calls it
        """Read the words of a command line."""
        with _redacting():
            return super().make_context(*arguments, **options)

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - the classes of typer's own parser
        """Write the help."""
        _make_plain(self, ctx)
        super().format_help(ctx, formatter)


class PlainGroup(TyperGroup):
    """A group of commands that is explained in plain words."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - see PlainCommand
        """Read the words of a command line."""
        with _redacting():
            return super().make_context(*arguments, **options)

    def resolve_command(self, *arguments: Any) -> Any:  # noqa: ANN401 - see PlainCommand
        """Find the command that a word names."""
        with _redacting():
            return super().resolve_command(*arguments)

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - see PlainCommand
        """Write the help."""
        _make_plain(self, ctx)
        super().format_help(ctx, formatter)


def value_word(parameter: Any, types: Mapping[str, Any]) -> str:  # noqa: ANN401 - see PlainCommand
    """Return the word for an option's value, by its annotation; empty for a flag; an argument keeps its own."""
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
    """Change the parameters for the help. That is safe: the process ends after the help."""
    types = types_of(command.callback)
    for parameter in command.get_params(ctx):
        if isinstance(parameter, TyperArgument):
            parameter.display_type_rich = _nothing  # type: ignore[method-assign]  # beside its name
        else:
            parameter.metavar = value_word(parameter, types)


def _nothing(ctx: object) -> None:
    del ctx

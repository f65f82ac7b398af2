"""The reference of the ``holdfast`` command, from its help texts."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any

import typer

from holdfast.cli.application import app
from holdfast.cli.help import types_of, value_word
from scripts.reference_pages.markdown import GENERATED, anchor, as_markdown, cell, fenced


def cli_page(application: typer.Typer = app) -> str:
    """Return docs/reference-cli.md."""
    root = typer.main.get_command(application)
    name = root.name or "holdfast"
    lines = [
        "# The command line",
        "",
        GENERATED,
        "",
        f"This page is for people who look up a command. `{name} COMMAND --help` shows the same in a terminal.",
    ]
    commands = list(command_tree(root, name))
    lines += _overview(commands)
    lines += ["", *_parameters(root)]
    for path, command in commands:
        depth = "#" * (path.count(" ") + 1)
        usage = " ".join(["Usage:", path, *_usage(command)])
        lines += ["", f"{depth} {path}", "", *fenced([usage]), "", _help(command), "", *_parameters(command)]
        while lines[-1] == "":
            lines.pop()
    return "\n".join(lines).rstrip() + "\n"


def _overview(commands: list[tuple[str, Any]]) -> Iterator[str]:
    """Return a table of the commands for each part of the help."""
    part: str | None = None
    for number, (path, command) in enumerate(commands):
        if number == 0 or (_panel(command) or part) != part:  # commands of a group are listed with their group
            part = _panel(command)
            yield from ("", f"**{part}**") if part else ()
            yield from ("", "| command | |", "|---|---|")
        yield f"| [`{path}`](#{anchor(path)}) | {cell(_help(command).partition(chr(10) * 2)[0])} |"


def command_tree(group: Any, path: str) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - the classes of typer's own parser
    """Return all commands with their full names, groups before their commands, in the order of --help."""
    context = typer.Context(group)  # a group may load its commands late
    named = [(name, group.get_command(context, name)) for name in group.list_commands(context)]
    shown = [(name, command) for name, command in named if not command.hidden]
    panels = list(dict.fromkeys([None, *(_panel(command) for _, command in shown)]))
    for name, command in sorted(shown, key=lambda one: panels.index(_panel(one[1]))):
        yield f"{path} {name}", command
        if _is_group(command):
            yield from command_tree(command, f"{path} {name}")


def _panel(command: Any) -> str | None:  # noqa: ANN401
    panel = getattr(command, "rich_help_panel", None)
    return panel if isinstance(panel, str) else None


def _usage(command: Any) -> Iterator[str]:  # noqa: ANN401
    yield "[OPTIONS]"
    for parameter in command.params:
        if _is_argument(parameter):
            name = value_word(parameter, {}) or parameter.name.upper()
            name = f"{name}..." if parameter.nargs == -1 else name
            yield name if parameter.required else f"[{name}]"
    if _is_group(command):
        yield "COMMAND"


def _parameters(command: Any) -> Iterator[str]:  # noqa: ANN401
    """Return the table of arguments and options, if there are any."""
    shown = [parameter for parameter in command.params if not parameter.hidden]
    if not shown:
        return
    types = types_of(command.callback)
    yield "| argument or option | meaning | default | environment |"
    yield "|---|---|---|---|"
    for parameter in sorted(shown, key=lambda one: not _is_argument(one)):
        names = ", ".join(f"`{name}`" for name in _names(parameter, types))
        variables = [parameter.envvar] if isinstance(parameter.envvar, str) else parameter.envvar or ()
        environment = ", ".join(f"`{name}`" for name in variables)
        yield f"| {names} | {cell(as_markdown(parameter.help or ''))} | {_default_of(parameter)} | {environment} |"


def _is_group(command: Any) -> bool:  # noqa: ANN401
    return isinstance(command, typer.core.TyperGroup)


def _is_argument(parameter: Any) -> bool:  # noqa: ANN401
    return isinstance(parameter, typer.core.TyperArgument)


def _names(parameter: Any, types: dict[str, Any]) -> list[str]:  # noqa: ANN401
    metavar = value_word(parameter, types)
    if _is_argument(parameter):
        return [cell(metavar or parameter.name.upper())]
    names = [*parameter.opts, *parameter.secondary_opts]
    return [*names[:-1], f"{names[-1]} {cell(metavar)}"] if metavar else names


def _default_of(parameter: Any) -> str:  # noqa: ANN401
    if parameter.required:
        return "required"
    if isinstance(parameter.show_default, str):
        return cell(parameter.show_default)
    value = parameter.default
    if not parameter.show_default or value is None or value is False or value in ((), [], "") or callable(value):
        return ""
    if value is True and parameter.secondary_opts:
        return f"`{parameter.opts[0]}`"
    return f"`{cell(_plain(value))}`"


def _plain(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(_plain(one) for one in value)
    return str(value.value if isinstance(value, enum.Enum) else f"{value:g}" if isinstance(value, float) else value)


def _help(command: Any) -> str:  # noqa: ANN401
    texts = (command.help or "").partition("\f")[0], command.epilog
    return "\n\n".join(as_markdown(text) for text in texts if text)

"""``holdfast config``: every setting, its value, and where it comes from."""

from __future__ import annotations

import os
from collections.abc import Mapping

from rich.text import Text

from holdfast.cli.options import AsJson
from holdfast.cli.terminal import console, print_json, print_message, print_page, print_table, table
from holdfast.model.task import JsonValue
from holdfast.redaction import redacted, without_password
from holdfast.settings import FILE, Settings, Value, current_settings, unknown_variables

COLUMNS = ("setting", "from", "value")


def config(*, as_json: AsJson = False) -> None:
    """Show every setting, its value, and where it comes from: a HOLDFAST_* variable, holdfast.toml, or the default."""
    settings = current_settings()
    unknown = unknown_variables(os.environ)
    if as_json:
        print_json(_form(settings, unknown))
    else:
        _print([_row(value) for value in settings.values.values()])
        found = f"read {settings.file}" if settings.file else f"there is no {FILE} here or in a folder above"
        print_message(f"{found}; a variable such as HOLDFAST_WORKER_LEASE goes before it, and a flag before both")
    for name, meant in unknown.items():
        print_message(unread(name, meant))


def unread(name: str, meant: str | None) -> str:
    """Return a warning about a variable that is not a setting, with the one that was probably meant."""
    return f"{name} is set, but it is not a setting{f'; did you mean {meant}?' if meant else ''}"


def _print(rows: list[list[str | Text]]) -> None:
    if not console().is_terminal:
        print_table(COLUMNS, rows, empty="there are no settings")
        return
    shown = table(COLUMNS, rows)
    shown.columns[-1].no_wrap, shown.columns[-1].overflow = False, "fold"  # a cut value would be useless
    print_page(shown)


def _row(value: Value) -> list[str | Text]:
    shown = _shown(value)
    text = ", ".join(map(str, shown)) if isinstance(shown, list) else "" if shown is None else str(shown)
    if value.origin == "default":
        return [value.setting.name, Text("default", "dim"), Text(text, "dim")]
    return [value.setting.name, Text(value.origin if value.origin == value.setting.variable else FILE, "cyan"), text]


def _shown(value: Value) -> JsonValue:
    """Return a value without secrets."""
    if value.setting.name in {"database_url", "listen_url"} and value.value is not None:
        return without_password(value.value)
    if isinstance(value.value, tuple):
        return [redacted(part) for part in value.value]
    return redacted(value.value) if isinstance(value.value, str) else value.value


def _form(settings: Settings, unknown: Mapping[str, str | None]) -> dict[str, JsonValue]:
    return {
        "file": None if settings.file is None else str(settings.file),
        "settings": [
            {
                "name": value.setting.name,
                "value": _shown(value),
                "origin": value.origin,
                "variable": value.setting.variable,
                "help": value.setting.help,
            }
            for value in settings.values.values()
        ],
        "unknown_variables": dict(unknown),
    }

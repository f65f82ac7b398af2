"""``holdfast doctor``: what is wrong with a store, and what to do about it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from holdfast.cli.errors import in_one_line
from holdfast.cli.exits import ExitCode
from holdfast.cli.options import AsJson, DatabaseUrl
from holdfast.cli.render.words import safe
from holdfast.cli.store_session import command, with_store
from holdfast.cli.terminal import console, print_json, print_message, print_page
from holdfast.model.errors import HoldfastError
from holdfast.service.diagnosis.evidence import NamedApplication
from holdfast.service.diagnosis.evidence_collector import gather
from holdfast.service.diagnosis.finding import Finding, Level, worst
from holdfast.service.diagnosis.report import diagnose
from holdfast.service.locator import why_untrusted
from holdfast.service.session import find_application
from holdfast.settings import DEFAULT_URL, Settings, current_settings, unknown_variables

_SIGNS = {
    Level.OK: ("✓", "green"),
    Level.NOTE: ("·", "cyan"),
    Level.WARNING: ("!", "yellow"),
    Level.ERROR: ("✗", "red"),
}


@command
async def doctor(
    *,
    thorough: Annotated[
        bool, typer.Option("--thorough", help="Look through the whole file for damage (SQLite); takes its time.")
    ] = False,
    app: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:HOLDFAST",
            help="The application, which is imported; by default the setting `application`, unless a holdfast.toml "
            "outside this folder names it.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Look for problems of the store, its workers and its tasks, and show what to do about each.

    Changes nothing: a missing store is not created, and an older one is not migrated. The exit code is 1 if there
    is an error. An application that a holdfast.toml in a folder above names is not imported: name it with --app.
    """
    settings_error: str | None = None
    url, has_url = database_url or DEFAULT_URL, database_url is not None
    application = None if app is None else _application(app)
    try:
        settings = current_settings()
        url = database_url or settings["database_url"]
        has_url = has_url or settings.is_set("database_url")
        if app is None and settings["application"] is not None:
            application = _application_of(settings)
    except HoldfastError as error:
        settings_error = in_one_line(error)
    options: Mapping[str, Any] = {}
    if application is not None and application.url is not None and app is None and not has_url:
        url, options = application.url, application.options  # the store that the other commands use
    seen = await gather(
        url,
        options=options,
        application=application,
        settings_error=settings_error,
        unknown_variables=unknown_variables(os.environ),
        thorough=thorough,
    )
    findings = diagnose(seen)
    if as_json:
        print_json({"findings": [one.to_json() for one in findings], "worst": str(worst(findings))})
    else:
        _print(findings)
        if seen.inside is not None and any(one.remedy for one in findings) and (there := with_store("", url)):
            print_message(f"by default these commands use another store; add to them:{there}")
    if worst(findings) is Level.ERROR:
        raise typer.Exit(ExitCode.FAILURE)


def _application_of(settings: Settings) -> NamedApplication:
    """Import the application that the settings name, unless the user may not know its code."""
    named = settings.values["application"]
    if (why := _why_untrusted(settings)) is not None:
        return NamedApplication(target=named.value, not_imported=why)
    return _application(named.value)


def _why_untrusted(settings: Settings) -> str | None:
    """Return why the code that the settings name is not run without --app; None if it is.

    The commands that run tasks import it from anywhere, because that is their purpose. But users run this one also in
    folders with files of other people.
    """
    file = settings.file
    if file is not None and settings.values["application"].origin == str(file) and file.parent != Path.cwd():
        return f"{file} names it, in a folder above this one"
    return why_untrusted(settings)


def _application(target: str) -> NamedApplication:
    try:
        service = find_application(target)
    except HoldfastError as error:
        return NamedApplication(target=target, error=in_one_line(error))
    queues, tasks = service.definitions.queues, service.definitions.names
    return NamedApplication(target=target, url=service.url, options=service.store_options, queues=queues, tasks=tasks)


def _print(findings: Sequence[Finding]) -> None:
    if not console().is_terminal:
        for finding in findings:
            typer.echo(f"{_SIGNS[finding.level][0]} {finding.check}: {safe(finding.words)}")
            if finding.remedy:
                typer.echo(f"    {safe(finding.remedy)}")
        typer.echo(_sum_up(findings))
        return
    grid = Table.grid(padding=(0, 1))
    for finding in findings:
        sign, style = _SIGNS[finding.level]
        lines = Text(safe(finding.words))
        if finding.remedy:
            lines.append(f"\n→ {safe(finding.remedy)}", "cyan")
        grid.add_row(Text(sign, f"bold {style}"), Text(finding.check, "dim"), lines)
    print_page(grid, Padding(Text(_sum_up(findings), f"bold {_SIGNS[worst(findings)][1]}"), (1, 0, 0, 0)))


def _sum_up(findings: Sequence[Finding]) -> str:
    counts = Counter(finding.level for finding in findings)
    parts = [
        f"{counts[level]} {noun}{'' if counts[level] == 1 else 's'}"
        for level, noun in ((Level.ERROR, "error"), (Level.WARNING, "warning"), (Level.NOTE, "note"))
        if counts[level]
    ]
    is_well = not counts[Level.ERROR] and not counts[Level.WARNING]
    return ", ".join([*(["all is well"] if is_well else []), *parts])

"""Settings, the application and what is installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from holdfast.redaction import without_password
from holdfast.service.diagnosis.evidence import StoreEvidence
from holdfast.service.diagnosis.finding import Finding, Level


def check_settings(seen: StoreEvidence) -> Iterator[Finding]:
    """Report settings that cannot be read, and HOLDFAST_* variables that are not settings."""
    if seen.settings_error is not None:
        words, _, remedy = seen.settings_error.partition("; ")
        yield Finding("settings", Level.ERROR, words, remedy or "correct the file, then: holdfast config")
    for name, meant in seen.unknown_variables.items():
        remedy = f"export {meant}=... instead; `holdfast config` shows what counts" if meant else f"unset {name}"
        yield Finding("settings", Level.WARNING, f"{name} is set, but it is not a setting", remedy)


def check_application(seen: StoreEvidence) -> Iterator[Finding]:
    """Check that the application can be imported, and that it and this command use the same store."""
    application = seen.application
    if application is None:
        return
    if application.not_imported is not None:
        words = f"{application.target} was not looked at: {application.not_imported}"
        remedy = f"if you trust its code: holdfast doctor --app {application.target}"
        yield Finding("application", Level.NOTE, words, remedy)
        return
    if application.error is not None or application.url is None:
        words, _, own = (application.error or "it has no store").partition("; ")
        remedy = own or f"correct it, then: holdfast doctor --app {application.target}"
        yield Finding("application", Level.ERROR, f"{application.target} cannot be used: {words}", remedy)
    elif place_of(application.url) != place_of(seen.url):
        yield Finding(
            "application",
            Level.WARNING,
            f"{application.target} uses {without_password(application.url)}, and this command "
            f"{without_password(seen.url)}: each sees other tasks",
            f"write Holdfast() there without a URL, or here: export HOLDFAST_DATABASE_URL="
            f"{without_password(application.url)}",
        )
    else:
        yield Finding("application", Level.OK, f"{application.target} uses the same store")


def check_machine(seen: StoreEvidence) -> Iterator[Finding]:
    """Report the Python version, the drivers and the system."""
    drivers = "".join(f", {name} {version}" for name, version in seen.drivers.items())
    yield Finding("machine", Level.OK, f"Python {seen.python}{drivers} on {seen.system}")


def check_extras(seen: StoreEvidence) -> Iterator[Finding]:
    """Report which optional parts are missing."""
    missing = [name for name, is_there in seen.extras.items() if not is_there]
    there = [name for name, is_there in seen.extras.items() if is_there]
    if missing:
        words = f"optional parts that are not installed: {', '.join(missing)}"
        yield Finding("extras", Level.NOTE, words, f"if you need one: pip install 'holdfast[{missing[0]}]'")
    elif there:
        yield Finding("extras", Level.OK, f"optional parts installed: {', '.join(there)}")


def place_of(url: str) -> tuple[str, str]:
    """Return which store a URL means, however it is spelled."""
    parts = urlsplit(url)
    if parts.scheme in {"sqlite", "json"} and not parts.netloc:
        return parts.scheme, str(Path(unquote(parts.path.removeprefix("/"))).resolve())
    if parts.scheme in {"postgres", "postgresql"}:
        # The user and the options of the connection do not change which store it is.
        return "postgresql", f"{parts.hostname or ''}:{parts.port or 5432}{parts.path}?{parts.query}"
    return parts.scheme, url

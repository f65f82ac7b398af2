"""Whether the store is there, and may be opened as it is."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.model.errors import (
    HoldfastError,
    InvalidURL,
    MissingExtra,
    NotAStore,
    ReadOnlyStore,
    SchemaMismatch,
    StoreBusy,
    StoreDamaged,
    StoreUnavailable,
)
from holdfast.redaction import without_password
from holdfast.service.diagnosis.evidence import StoreEvidence
from holdfast.service.diagnosis.finding import Finding, Level

_REMEDIES: tuple[tuple[type[HoldfastError], str], ...] = (
    (InvalidURL, "correct it in holdfast.toml or HOLDFAST_DATABASE_URL; `holdfast config` shows where it comes from"),
    (NotAStore, "`holdfast config` shows where the URL comes from; `holdfast migrate` sets up a store that is new"),
    (SchemaMismatch, "see what is installed with `holdfast --version`, and upgrade the older of the two"),
    (StoreUnavailable, "see that the server runs and lets you in; `holdfast config` shows where the URL comes from"),
    (StoreBusy, "stop the other process, then ask again: `holdfast doctor`"),
    (StoreDamaged, "stop the workers and restore a backup; `holdfast doctor --thorough` looks at every page of SQLite"),
    (ReadOnlyStore, "give yourself the right to write: `ls -l` shows who has it"),
)


_DATABASES = frozenset({"SQLite", "PostgreSQL"})
"""The backends that have a version of their own."""


def check_store(seen: StoreEvidence) -> Iterator[Finding]:
    """Report what the store is, or why it cannot be used."""
    if seen.failure is not None:
        yield _failed(seen.failure)
    elif seen.inside is not None:
        vitals = seen.inside.vitals
        # The others also use the library of SQLite, but its version would say nothing about them.
        version = f" {vitals.version}" if vitals.backend in _DATABASES else ""
        yield Finding("store", Level.OK, f"{without_password(seen.url)} answers: {vitals.backend}{version}")


def check_schema(seen: StoreEvidence) -> Iterator[Finding]:
    """Report whether the schema is this version's; an older one is left as it is."""
    if seen.schema is None:
        if seen.inside is not None:
            yield Finding("schema", Level.OK, f"schema {seen.inside.vitals.schema}, which is this version's")
        return
    found, ours = seen.schema
    if found == ours:
        yield Finding("schema", Level.OK, f"schema {found}, which is this version's")
    elif found < ours:
        state = f"schema {found}, older than {ours} of this version" if found else "nothing in it yet"
        yield Finding(
            "schema",
            Level.ERROR,
            f"the store has {state}; it was left as it is, so there is no more to see",
            f"make a copy of it, then: holdfast migrate --database-url {without_password(seen.url)}",
        )
    else:
        yield Finding(
            "schema",
            Level.ERROR,
            f"the store has schema {found}, and this version knows only {ours}",
            "upgrade it: pip install --upgrade holdfast",
        )


def _failed(error: HoldfastError) -> Finding:
    """Return the error of opening the store as a finding: its message, and its remedy."""
    if isinstance(error, MissingExtra):
        words, _, command = str(error).partition(": ")
        return Finding("store", Level.ERROR, words, command)
    what, _, own = " ".join(str(error).split()).partition("; ")
    general = next((remedy for kind, remedy in _REMEDIES if isinstance(error, kind)), "`holdfast config` shows the URL")
    level = Level.WARNING if isinstance(error, StoreBusy) else Level.ERROR
    check = "schema" if isinstance(error, SchemaMismatch) else "store"
    return Finding(check, level, what, own if "`" in own else f"{own}; {general}" if own else general)

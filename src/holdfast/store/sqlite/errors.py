"""What went wrong in SQLite, in our own words."""

from __future__ import annotations

import apsw

from holdfast.model.errors import (
    HoldfastError,
    InvalidValue,
    NotAStore,
    ReadOnlyStore,
    SchemaMismatch,
    StoreBusy,
    StoreDamaged,
    StoreUnavailable,
)
from holdfast.store.handles import TooManyOpenFiles, are_exhausted


class translated:  # noqa: N801 - reads as a function does, and costs a third of one made by contextlib
    """Turn SQLite's errors into ours, naming the file and the remedy."""

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        """Name the file."""
        self._path = path

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Raise in our words what happened inside."""
        if error is not None and (ours := in_our_words(self._path, error)) is not None:
            raise ours from error


def in_our_words(path: str, error: BaseException) -> HoldfastError | None:  # noqa: PLR0911 - one answer a kind
    """Return what an error of SQLite means; None for one that has no such meaning."""
    match error:
        case apsw.SQLError() if "no such function: holdfast_was_upgraded" in str(error):
            return SchemaMismatch(
                f"a newer version of Holdfast has migrated {path}; nothing was written, restart this process with it"
            )
        case apsw.NotADBError():
            return NotAStore(f"{path} is not a SQLite database; it was left untouched, choose another file")
        case apsw.CantOpenError() if are_exhausted():
            return TooManyOpenFiles(path)
        case apsw.ReadOnlyError() | apsw.CantOpenError() | apsw.PermissionsError() | apsw.AuthError():
            return ReadOnlyStore(f"{path} cannot be written ({error}); check the rights on the file and its folder")
        case apsw.BusyError() | apsw.LockedError():
            return StoreBusy(f"{path} is locked by another program ({error}); close it, or try again")
        case apsw.CorruptError():
            return StoreDamaged(f"{path} is damaged ({error}); restore a backup, or salvage it with `sqlite3 .recover`")
        case apsw.FullError():
            return StoreUnavailable(f"{path} could not grow ({error}); free disk space, nothing was written")
        case apsw.IOError() | apsw.ProtocolError() | apsw.NoMemError():
            trouble = StoreUnavailable(f"{path} could not be read or written ({error}); check the disk")
            trouble.refuses_statement = isinstance(error, apsw.IOError)  # a bad sector may be below one row only
            return trouble
        case UnicodeEncodeError() | OverflowError() | apsw.MismatchError() | apsw.TooBigError():
            return InvalidValue(f"a value that {path} cannot hold: {error}; nothing was written")
        case _:
            return None

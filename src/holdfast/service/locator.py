"""Find the application's Holdfast object: ``my_module:hold``, or ``my_module`` where it has only one."""

from __future__ import annotations

import importlib
import os
import stat
import sys
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType

from holdfast.engine.api.holdfast import Holdfast
from holdfast.model.errors import HoldfastError, InvalidURL, InvalidValue, MissingExtra
from holdfast.model.failure import Failure
from holdfast.settings import Settings, current_settings, is_postgres

_URLS: dict[str, str] = {}
"""The store of each application that was found, before a flag named another."""


def find_holdfast(target: str | None, database_url: str | None = None, *, role: str = "command") -> Holdfast:
    """Import the module, from the working directory too, and return its Holdfast object.

    Without a target, the one that the settings name. ``database_url`` names another store than the module does.
    ``role``: see ``show_role``.
    """
    settings = current_settings()
    target = target or settings["application"]
    if target is None:
        raise InvalidValue(
            "no application is named; give MODULE:HOLDFAST, such as my_module:hold, or set application in holdfast.toml"
        )
    folder = Path.cwd() if settings.file is None else settings.file.parent
    module_name, _, attribute = target.partition(":")
    module = _import(module_name, folder)
    hold = _attribute(module, attribute) if attribute else _the_only_one(module)
    _URLS.setdefault(target, hold.url)
    if database_url is not None:
        hold.url = database_url
    show_role(hold, role)
    return hold


def why_untrusted(settings: Settings) -> str | None:
    """Return why the code that the settings name is perhaps not the user's own; None if it can be trusted.

    A settings file is also looked for in the folders above, and every user can write to some of those, such as /tmp.
    """
    named, file = settings.values["application"], settings.file
    if file is None or named.origin != str(file):
        return None
    status = file.stat()
    if hasattr(os, "geteuid") and status.st_uid not in {0, os.geteuid()}:
        return f"{file} names it, and belongs to another user"
    if os.name != "nt" and status.st_mode & stat.S_IWOTH:
        return f"{file} names it, and every user can write that file"
    return None


def url_in_code(target: str) -> str | None:
    """Return the URL of an application's store, as its code has it; None if this process did not import it."""
    return _URLS.get(target)


def show_role(hold: Holdfast, role: str) -> None:
    """Have PostgreSQL show what this process is for, as the application_name of its connections."""
    if is_postgres(hold.url):
        hold.options.setdefault("application_name", f"holdfast {role}")  # the application's own stays


def _import(name: str, folder: Path) -> ModuleType:
    if name.endswith(".py") or "/" in name or "\\" in name:
        dotted = ".".join(Path(name.replace("\\", "/")).with_suffix("").parts)
        raise InvalidValue(f"{name!r} is a file; name the module: {dotted}:hold")
    if not all(part.isidentifier() for part in name.split(".")):
        raise InvalidValue(f"{name!r} is not a module name; write module:attribute, such as my_module:hold")
    here = str(Path.cwd())
    for place in (str(folder), here):
        if place not in sys.path:
            sys.path.insert(0, place)
    try:
        with redirect_stdout(sys.stderr):  # stdout is for data, whatever a module prints
            return importlib.import_module(name)
    except (InvalidURL, MissingExtra):
        raise  # about the settings, not the code: its message is enough
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise InvalidValue(f"there is no module {error.name!r} in {here} or on the Python path") from None
        raise ImportFailed(name, error) from error
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        raise ImportFailed(name, error) from error


class ImportFailed(HoldfastError):
    """The user's module raises an error when it is imported."""

    def __init__(self, module: str, error: BaseException) -> None:
        """Name the place: the line that Python could not parse, or the last line of user code in the traceback."""
        failure = Failure.of(error)
        place = _place_in_text(error) or failure.where
        where = f" at {place}" if place else ""
        said = f"it exits with {error}" if isinstance(error, SystemExit) else f"{failure.type_name}: {failure.message}"
        super().__init__(f"importing {module} fails{where}: {said}; fix it there, or see more of it with --debug")


def _place_in_text(error: BaseException) -> str | None:
    """Return the line that a SyntaxError is about. No code of that file ran: the traceback ends before it."""
    if not isinstance(error, SyntaxError) or error.filename is None or error.lineno is None:
        return None
    return f"{Path(error.filename).name}:{error.lineno}"


def _attribute(module: ModuleType, path: str) -> Holdfast:
    found: object = module
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise InvalidValue(f"module {module.__name__!r} has no {path!r}{_instead(module)}") from None
    if not isinstance(found, Holdfast):
        kind = type(found).__name__
        raise InvalidValue(f"{module.__name__}:{path} is not a Holdfast object but a {kind}{_instead(module)}")
    return found


def _the_only_one(module: ModuleType) -> Holdfast:
    found = _all(module)
    if len(set(map(id, found.values()))) == 1:
        return next(iter(found.values()))
    if not found:
        raise InvalidValue(f"module {module.__name__!r} has no Holdfast object; make one: hold = Holdfast()")
    raise InvalidValue(f"module {module.__name__!r} has several Holdfast objects{_instead(module)}")


def _instead(module: ModuleType) -> str:
    names = " or ".join(f"{module.__name__}:{name}" for name in _all(module))
    return f"; write {names}" if names else ""


def _all(module: ModuleType) -> dict[str, Holdfast]:
    return {name: value for name, value in vars(module).items() if isinstance(value, Holdfast)}

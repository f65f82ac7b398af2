"""Find the application's Holdfast object: ``my_module:hold``, or ``my_module`` where it has only one."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from types import ModuleType, TracebackType

import typer

from holdfast.cli.exits import ExitCode
from holdfast.engine.holdfast import Holdfast
from holdfast.model.errors import InvalidURL, InvalidValue, MissingExtra


def find_holdfast(target: str, database_url: str | None = None) -> Holdfast:
    """Import the module, from the working directory too, and return its Holdfast object.

    ``database_url`` names another store than the module does.
    """
    module_name, _, attribute = target.partition(":")
    module = _import(module_name)
    hold = _attribute(module, attribute) if attribute else _the_only_one(module)
    if database_url is not None:
        hold.url = database_url
    return hold


def _import(name: str) -> ModuleType:
    if name.endswith(".py") or "/" in name or "\\" in name:
        dotted = ".".join(Path(name.replace("\\", "/")).with_suffix("").parts)
        raise InvalidValue(f"{name!r} is a file; name the module: {dotted}:hold")
    if not all(part.isidentifier() for part in name.split(".")):
        raise InvalidValue(f"{name!r} is no module name; write module:attribute, such as my_module:hold")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except (InvalidURL, MissingExtra):
        raise  # about the settings, not the code: its one line says it all
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise InvalidValue(f"there is no module {error.name!r} in {here} or on the Python path") from None
        _show_own_traceback(error)
    except Exception as error:  # noqa: BLE001 - whatever the user's code raises
        _show_own_traceback(error)
    raise typer.Exit(ExitCode.FAILURE)


def _show_own_traceback(error: Exception) -> None:
    """Print the traceback of an error in the user's module, from their first line on."""
    frame: TracebackType | None = error.__traceback__
    while frame is not None and _is_ours(frame):
        frame = frame.tb_next
    traceback.print_exception(error.with_traceback(frame))


def _is_ours(frame: TracebackType) -> bool:
    module = str(frame.tb_frame.f_globals.get("__name__", ""))
    return module == __name__ or module.partition(".")[0] in {"importlib", "_frozen_importlib"}


def _attribute(module: ModuleType, path: str) -> Holdfast:
    found: object = module
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise InvalidValue(f"module {module.__name__!r} has no {path!r}{_instead(module)}") from None
    if not isinstance(found, Holdfast):
        kind = type(found).__name__
        raise InvalidValue(f"{module.__name__}:{path} is no Holdfast object but a {kind}{_instead(module)}")
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

"""``holdfast init``: write a small project that works."""

from __future__ import annotations

import os
import shlex
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Final

import typer

from holdfast.cli.confirmation import ask
from holdfast.cli.options import AsJson, Yes
from holdfast.cli.terminal import print_json, words
from holdfast.model.errors import Conflict, HoldfastError

_FILES: Final = {"agents.py": "agents.py", "holdfast.toml": "holdfast.toml", ".gitignore": "gitignore"}
"""Each file of a project, and its name in the package: there git would obey a .gitignore."""

_NEXT: Final = {
    'holdfast run devops --input "Is the disk full?"': "try the agent, offline",
    "holdfast worker": "work until Ctrl-C",
    "holdfast show TASK": "see what a task did",
}


def init(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Where to; it is made if it is missing.", show_default="here")
    ] = Path(),
    *,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Write a small project that works: an agent with a tool, settings, and what git should ignore.

    Nothing is ever overwritten. It asks first where there are other files.
    """
    _refuse_existing(folder)
    if folder.is_dir() and any(not entry.name.startswith(".") for entry in folder.iterdir()):
        ask(f"{folder.absolute()} has other files in it, and gets {', '.join(_FILES)} beside them.", yes=yes)
    written = _write(folder)
    if as_json:
        whole = os.path.abspath(folder)  # noqa: PTH100 - without `..`, and without following links
        files_written = [str(path) for path in written]
        print_json({"folder": whole, "files": files_written, "next": [*_way_to(folder), *_NEXT]})
        return
    for path in written:
        typer.echo(path)
    _print_next_steps(folder)


def _refuse_existing(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise Conflict(f"{folder} is a file; nothing was written, choose a folder")
    existing = [name for name in _FILES if (folder / name).exists() or (folder / name).is_symlink()]
    if existing:
        there = "is there already" if len(existing) == 1 else "are there already"
        raise Conflict(
            f"{', '.join(existing)} {there} in {folder.absolute()}; nothing was written, choose another folder: "
            "holdfast init FOLDER"
        )


def _write(folder: Path) -> list[Path]:
    """Write every file, or none of them."""
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, source in _FILES.items():
            text = (files("holdfast.cli.project") / source).read_text(encoding="utf-8")
            with (folder / name).open("x", encoding="utf-8") as file:  # never overwrite a file that appeared meanwhile
                written.append(folder / name)
                file.write(text)
    except OSError as error:
        for path in written:
            path.unlink(missing_ok=True)
        where = error.filename or folder
        raise HoldfastError(
            f"{where} cannot be written: {error.strerror}; nothing was, choose another folder"
        ) from None
    return written


def _print_next_steps(folder: Path) -> None:
    longest = max(map(len, _NEXT))
    lines = ["Next:", *(f"  {command}" for command in _way_to(folder))]
    lines += [f"  {command:{longest}}  {why}" for command, why in _NEXT.items()]
    words().print("\n".join(lines), markup=False, soft_wrap=True)


def _way_to(folder: Path) -> list[str]:
    return [] if folder.resolve() == Path.cwd() else [f"cd {shlex.quote(str(folder))}"]

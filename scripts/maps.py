"""Write the map of every package: the list of its modules at the end of the docstring of its ``__init__.py``.

    python scripts/maps.py            writes them
    python scripts/maps.py --check    fails if a map is not up to date

A line of a map is the first sentence of the module's own docstring; change it there.

The folder of PostgreSQL's migrations gets another map: which file defines each function last. A later migration may
replace a function, and the earlier file never changes.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src/holdfast"
COMMAND = "python scripts/maps.py"
HEADING = "Modules:"
WIDTH = 120

MIGRATIONS = SOURCE / "store/postgres/migrations"
FUNCTIONS = "Functions, each in the file that defines it as it is now:"

_DEFINED = re.compile(r"^CREATE (?:OR REPLACE )?FUNCTION \{schema\}\.(\w+)", re.MULTILINE)
_DOCSTRING = re.compile(r'\A(?P<mark>r?""")(?P<text>.*?)"""\n', re.DOTALL)


def packages() -> Iterator[Path]:
    """Yield the ``__init__.py`` of every package with more than one part."""
    for path in sorted(SOURCE.rglob("__init__.py")):
        if path.parent != SOURCE and len(list(parts(path.parent))) > 1:
            yield path


def parts(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the packages and then the modules of a folder: the name in the map, and the file that describes it."""
    for path in sorted(folder.iterdir()):
        if (path / "__init__.py").exists():
            yield f"{path.name}/", path / "__init__.py"
    for path in sorted(folder.glob("*.py")):
        if path.name != "__init__.py":
            yield path.name, path


def first_sentence(path: Path) -> str:
    """Return the first sentence of a module's docstring, without its full stop."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(text.split("\n\n", 1)[0].split())
    return re.split(r"(?<=\.)\s", paragraph, maxsplit=1)[0].removesuffix(".")


def draw(folder: Path) -> str:
    """Return the map of a package."""
    found = list(parts(folder))
    width = max(len(name) for name, _ in found) + 2
    lines = (
        textwrap.fill(
            first_sentence(path),
            WIDTH,
            initial_indent=name.ljust(width),
            subsequent_indent=" " * width,
            break_on_hyphens=False,
            break_long_words=False,
        )
        for name, path in found
    )
    return "\n".join((HEADING, "", *lines))


def live_functions(folder: Path) -> dict[str, list[str]]:
    """Return the functions of the database by the migration that defines each of them last."""
    last = {
        function: path.name
        for path in sorted(folder.glob("*.sql"))
        for function in _DEFINED.findall(path.read_text(encoding="utf-8"))
    }
    found: dict[str, list[str]] = {}
    for function, file in sorted(last.items(), key=lambda pair: (pair[1], pair[0])):
        found.setdefault(file, []).append(function)
    return found


def draw_functions(folder: Path) -> str:
    """Return the map of the functions of the database."""
    live = live_functions(folder)
    width = max(map(len, live)) + 2
    lines = (
        textwrap.fill(", ".join(functions), WIDTH, initial_indent=file.ljust(width), subsequent_indent=" " * width)
        for file, functions in live.items()
    )
    return "\n".join((FUNCTIONS, "", *lines))


def maps() -> Iterator[tuple[Path, str, str]]:
    """Yield every file with a map, the heading of the map, and the map."""
    for path in packages():
        yield path, HEADING, draw(path.parent)
    yield MIGRATIONS / "__init__.py", FUNCTIONS, draw_functions(MIGRATIONS)


def with_map(path: Path, heading: str, drawn: str) -> str:
    """Return the text of an ``__init__.py`` with the map as it should be."""
    text = path.read_text(encoding="utf-8")
    found = _DOCSTRING.match(text)
    if found is None:
        raise SystemExit(f"{path.relative_to(ROOT)} has no docstring to hold its map; write one")
    introduction = found["text"].partition(f"\n\n{heading}\n")[0].rstrip()
    return f'{found["mark"]}{introduction}\n\n{drawn}\n"""\n{text[found.end() :]}'


def main(arguments: Sequence[str]) -> int:
    """Write the maps, or check them; return the exit code."""
    parser = argparse.ArgumentParser(prog=COMMAND, description="Write the maps of the packages.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a map is not up to date")
    check = parser.parse_args(arguments).check
    wanted = {path: with_map(path, heading, drawn) for path, heading, drawn in maps()}
    stale = [path for path, text in wanted.items() if path.read_text(encoding="utf-8") != text]
    for path in stale:
        if check:
            print(f"{path.relative_to(ROOT)} is not up to date; run: {COMMAND}", file=sys.stderr)
        else:
            path.write_text(wanted[path], encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Running what a page tells its reader to type: its files, its ``console`` blocks and its ``sh`` blocks, in order."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.docs.matching import ANYTHING, difference, matches
from tests.docs.pages import Block, PageError, blocks, place
from tests.docs.shell import LONGEST, Shell, is_running

NOT_RUN = {
    "make": "there is no Makefile in a page's working folder",
    "make demo": "run by the test of a fresh clone, scripts/fresh_clone",
    "make test": "runs all tests, this one among them",
    "make check": "checks the source, not the pages",
    'make bench BENCH="--quick --no-peers"': "takes minutes, and measures nothing on a busy machine",
    'make bench BENCH="--only drain --store postgres"': "as above",
    'make bench BENCH="--fsync-us 500 --json figures.json"': "as above",
    "python -m benchmarks.effects_peers": "takes three quarters of an hour and installs the peers",
    "python -m benchmarks.effects_peers --kills 20 --freezes 5 --only holdfast,dbos --seed 7 --json": "as above",
    "pip install 'holdfast[openai]'": "needs a published package",
}
"""Lines of ``sh`` blocks that the tests leave out, and why."""

KILLED = "Killed"
_KILLED_CODE = 128 + 9
_EXIT = re.compile(r"# exit (\d+)")
_SIGNALLED = re.compile(r"\S+: line \d+: +\d+ Killed\b.*")
"""How a bash without a person in front of it says "Killed"."""


class Differs(AssertionError):
    """A command did something other than its page shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One command of a page, and what is shown under it."""

    where: str
    text: str
    shown: tuple[str, ...]
    """The output. If there is none, it is not looked at."""
    code: int

    @property
    def background(self) -> bool:
        return self.text.endswith(" &")


def console_commands(block: Block) -> Iterator[Command]:
    """Read a ``console`` block: lines with ``$ `` are commands, the lines under each are what it prints."""
    lines = block.body.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("$ ")]
    if starts[:1] != [0]:
        raise PageError(f"{block.where}: a console block begins with a command, after '$ '")
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        typed = start
        while lines[typed].endswith("\\") and typed + 1 < end:
            typed += 1
        shown = _without_blank_end(lines[typed + 1 : end])
        code = 0
        if shown and (said := _EXIT.fullmatch(shown[-1])):
            shown, code = shown[:-1], int(said[1])
        elif shown[-1:] == [KILLED]:
            code = _KILLED_CODE
        text = "\n".join(lines[start : typed + 1]).removeprefix("$ ").rstrip()
        yield Command(where=place(block.page, block.line + 1 + start), text=text, shown=tuple(shown), code=code)


def shell_commands(block: Block) -> Iterator[Command]:
    """Read an ``sh`` block: every line is a command that has to succeed."""
    lines = block.body.splitlines()
    number = 0
    while number < len(lines):
        start = number
        while lines[number].endswith("\\") and number + 1 < len(lines):
            number += 1
        text = re.sub(r"(^|\s+)#.*$", "", "\n".join(lines[start : number + 1])).strip()
        if text:
            yield Command(where=place(block.page, block.line + 1 + start), text=text, shown=(), code=0)
        number += 1


def is_session(page: Path) -> bool:
    """Say whether the page has anything to type."""
    return bool(blocks(page, "console", "sh"))


def unused(table: Collection[str], pages: Sequence[Path]) -> list[str]:
    """Return the commands in the table of those left out that no page has."""
    said = {command.text for page in pages for block in blocks(page, "sh") for command in shell_commands(block)}
    return [text for text in table if text not in said]


def run_page(
    page: Path, folder: Path, *, not_run: Collection[str] = NOT_RUN, longest: float = LONGEST, forked: bool = False
) -> None:
    """Do what the page says. Raises Differs, with the line, where something else happens than it shows.

    With ``forked``, short commands are forked instead of started.
    """
    work = folder / "work"
    work.mkdir()
    with Shell(work, longest=longest, forked=forked) as shell:
        for block in blocks(page):
            if block.file is not None:
                target = work / block.file
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(block.body, encoding="utf-8")
            elif block.language == "console":
                for command in console_commands(block):
                    _do(shell, command, folder, longest)
            elif block.language == "sh":
                for command in shell_commands(block):
                    if command.text not in not_run:
                        _do(shell, command, folder, longest)
        shell.stop_backgrounds()


def _do(shell: Shell, command: Command, folder: Path, longest: float) -> None:
    if command.background:
        output = folder / f"background-{len(list(folder.glob('background-*')))}"
        _await_lines(shell.start(command.text, output), output, command, longest)
        return
    code, text = shell.run(command.text)
    printed = [_SIGNALLED.sub(KILLED, line) for line in text.splitlines()]
    _compare(command, printed)
    if code != command.code:
        said = "\n".join(printed)
        raise Differs(f"{command.where}: $ {command.text}\nexit code {code}, not {command.code}; it said:\n{said}")


def _await_lines(group: int, output: Path, command: Command, longest: float) -> None:
    """Wait until a background command has said what is shown under it."""
    until = time.monotonic() + longest
    while command.shown:
        over = not is_running(group) or time.monotonic() > until  # read before this check: its last lines count
        lines = output.read_text(encoding="utf-8", errors="replace").splitlines()
        # The shell may report only now that an earlier background command was killed.
        printed = [line for line in lines if not _SIGNALLED.fullmatch(line)]
        if matches((*command.shown, ANYTHING), printed):
            return
        if over:
            _compare(command, printed)
            raise Differs(f"{command.where}: $ {command.text}\nended before it was to")
        time.sleep(0.02)


def _compare(command: Command, printed: Sequence[str]) -> None:
    printed = _without_blank_end(printed)
    if command.shown and not matches(command.shown, printed):
        found = difference(command.shown, printed, where=command.where)
        raise Differs(f"{command.where}: $ {command.text}\n{found}")


def _without_blank_end(lines: Sequence[str]) -> list[str]:
    kept = list(lines)
    while kept and not kept[-1].strip():
        kept.pop()
    return kept

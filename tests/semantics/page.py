"""docs/semantics.md, written from the table: ``python -m tests.semantics.page``."""

from __future__ import annotations

from collections.abc import Sequence

from tests.semantics.table import COLUMNS, ROOT, Row, read_table

PAGE = ROOT / "docs/semantics.md"

BEFORE = """\
# What happens when

This page is for people who write tasks and agents. It says what runs again and what does not, for each part of a task,
when the task is retried, resumed, forked or cancelled, when its worker dies, and when its code changes. Every cell is
tested:
[the table](../tests/semantics/table.toml) names the proof of each.

<!-- Written from tests/semantics/table.toml by `python -m tests.semantics.page`. -->

| the occasion | what it is |
|---|---|
| **automatic retry** | an attempt fails, and the task's `retry=` begins the next one; the same round |
| **resume** | `hold.resume` lets a failed task go on; the same round |
| **take-over** | its worker dies or loses its lease, and another one goes on; the same round |
| **suspension** | every branch waits, the code is unwound, and replays later; the same round |
| **deploy** | the code changes while the task is under way; the same round |
| **retry** | `hold.retry` starts a failed task over by hand; a new round |
| **new round** | a verifier rejects the result; a new round |
| **fork** | `hold.fork` makes a new task that shares the past of this one |
| **cancel** | `hold.cancel` stops the task and its children |
| **deadline** | the task's own deadline passes |
| **prune** | `holdfast prune` deletes what ended long ago |

**Replays** means: the recorded result is read from the journal, and nothing runs.

## At a glance

In the same round:

"""

BETWEEN = """
A new beginning, and the end:

"""

AFTER = """\
## Read next

- [Concepts](concepts.md#rounds): rounds and replays
- [Effects](effects.md): how a doubt is resolved
- [Forks](agent-state.md#forks): what a fork shares
- [Upgrading](upgrading.md): changing code while tasks are under way
- [Testing your tasks](testing.md): how to prove the same of your own tasks
"""

SAME_ROUND = ("automatic_retry", "resume", "take_over", "suspension", "deploy")
NEW_ROUND_AND_END = ("retry", "new_round", "fork", "cancel", "deadline", "prune")


def written() -> str:
    """Return the page as the table has it."""
    rows = list(read_table().values())
    parts = [BEFORE, overview(rows, SAME_ROUND), BETWEEN, overview(rows, NEW_ROUND_AND_END), "\n"]
    return "".join([*parts, *map(section, rows), AFTER])


def overview(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """Return a matrix with a word or two for each cell."""
    lines = [f"| | {' | '.join(COLUMNS[column] for column in columns)} |", "|---" * (len(columns) + 1) + "|"]
    lines += [
        f"| [{row.title}](#{anchor(row)}) | {' | '.join(row.cells[column].brief for column in columns)} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def section(row: Row) -> str:
    """Return the whole text about one thing."""
    lines = [f"## {row.title}", "", f"{row.about[0].upper()}{row.about[1:]}.", "", "| on | what happens |", "|---|---|"]
    lines += [f"| {name} | {row.cells[column].text} |" for column, name in COLUMNS.items()]
    return "\n".join(lines) + "\n\n"


def anchor(row: Row) -> str:
    """Return the name that a heading has in links."""
    return row.title.lower().replace(",", "").replace(" ", "-")


if __name__ == "__main__":
    PAGE.write_text(written(), encoding="utf-8")

"""Draw the diagrams of the docs as SVG: docs/diagrams/*.svg.

    python scripts/diagrams.py            writes them
    python scripts/diagrams.py --check    fails if a diagram is not up to date

The states and moves of a task and of an effect come from the tables that the code itself uses. Only the place of each
state on the page, the two sequences and the layers are written here.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import hypot
from pathlib import Path

from holdfast.model.effect import EFFECT_MOVES, EffectState
from holdfast.model.transitions import MOVES, TERMINAL, TaskState

ROOT = Path(__file__).parent.parent
COMMAND = "python scripts/diagrams.py"
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2430; text-anchor: middle; }
  .small { font-size: 12px; fill: #4a5264; paint-order: stroke; stroke: #ffffff; stroke-width: 3px; }
  .box { fill: #eef2fb; stroke: #5b6b92; stroke-width: 1.4; }
  .end { fill: #e6f2ea; stroke: #4d7d5f; }
  .bad { fill: #fbe9e7; stroke: #a8584c; }
  .left { text-anchor: start; } .name { font-weight: 600; }
  .edge { fill: none; stroke: #5b6b92; stroke-width: 1.3; marker-end: url(#tip); }
  .life { stroke: #9aa5bf; stroke-dasharray: 4 4; }
  .note { fill: #fdf4dd; stroke: #b8963e; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6e9f2; } .small { fill: #b4bccf; stroke: #14171f; }
    .box { fill: #262d40; stroke: #8fa1cf; } .end { fill: #20372a; stroke: #7fb895; }
    .bad { fill: #43241f; stroke: #d08a7e; }
    .edge { stroke: #8fa1cf; } .note { fill: #3b3220; stroke: #d1b15e; }
  }
"""
WIDTH, HEIGHT = 118.0, 36.0
"""Of the box of a state."""

LABEL = 22
"""Characters of a line of a label."""

TASK_PLACES = {
    TaskState.PENDING: (100, 200),
    TaskState.RUNNING: (440, 200),
    TaskState.WAITING: (270, 330),
    TaskState.REVIEW: (790, 200),
    TaskState.COMPLETED: (790, 60),
    TaskState.FAILED: (620, 440),
}
TASK_BENDS = {
    ("pending", "running"): 20.0,
    ("running", "pending"): 44.0,
    ("review", "pending"): 250.0,
    ("pending", "failed"): 190.0,
    ("failed", "pending"): -350.0,
    ("review", "waiting"): 46.0,
    ("running", "waiting"): -10.0,
}
"""How far an arrow bends to the right of its direction, so that arrows and boxes cross as little as possible."""

EFFECT_PLACES = {
    EffectState.INTENDED: (160, 40),
    EffectState.ARMED: (420, 40),
    EffectState.DONE: (680, 40),
    EffectState.FAILED: (160, 170),
    EffectState.IN_DOUBT: (420, 170),
    EffectState.NEEDS_HUMAN: (420, 300),
    EffectState.ABANDONED: (160, 300),
    EffectState.COMPENSATING: (680, 300),
    EffectState.COMPENSATED: (680, 170),
}
EFFECT_BENDS = {
    ("done", "compensating"): -165.0,
    ("intended", "abandoned"): 165.0,
    ("failed", "intended"): -12.0,
    ("needs_human", "intended"): -26.0,
    ("needs_human", "done"): 40.0,
}


@dataclass(frozen=True)
class Message:
    """One arrow of a sequence, or a note over one of its columns."""

    source: int
    target: int
    text: str


def task_life() -> str:
    """Draw the states of a task. Cancelling is the same from every open state, so only the caption mentions it."""
    moves = {
        (source.value, target.value): meaning
        for source, targets in MOVES.items()
        for target, meaning in targets.items()
        if target is not TaskState.CANCELLED
    }
    caption = "Any open task can also be cancelled. A parent can restart an ended child."
    return _states(
        {state.value: place for state, place in TASK_PLACES.items()}, moves, TASK_BENDS, TERMINAL_NAMES, caption
    )


def effect_states() -> str:
    """Draw the states of the effect of a ``once`` step."""
    moves = {
        (source.value, target.value): ""
        for source, targets in EFFECT_MOVES.items()
        if source is not None
        for target in sorted(targets)  # a set has no order
    }
    places = {state.value: place for state, place in EFFECT_PLACES.items()}
    caption = "An unknown outcome is in_doubt until reconcile or a person decides. Late evidence reopens a decision."
    return _states(places, moves, EFFECT_BENDS, EFFECT_ENDS, caption)


def step_commit() -> str:
    """Draw what one step writes, and when."""
    return _sequence(
        ["task code", "attempt", "group commit", "database"],
        [
            Message(0, 1, "ctx.step(name, function)"),
            Message(1, 1, "in the journal? return the recorded result"),
            Message(1, 0, "otherwise call the function"),
            Message(0, 1, "result"),
            Message(1, 2, "Commit: fence, number, result"),
            Message(2, 3, "many Commits, one transaction"),
            Message(3, 2, "a verdict for each Commit"),
            Message(2, 1, "durable"),
            Message(1, 0, "the next line runs"),
        ],
    )


def take_over() -> str:
    """Draw how a second worker takes over from one that died."""
    return _sequence(
        ["worker A", "database", "worker B"],
        [
            Message(0, 1, "claim: fence 1, lease 30 s"),
            Message(0, 1, "Commits under fence 1, heartbeats"),
            Message(0, 0, "killed, frozen or cut off"),
            Message(2, 1, "claims, and finds the lease expired"),
            Message(1, 2, "the task, fence 2, and its journal"),
            Message(2, 2, "completed steps replay; the open one runs again"),
            Message(2, 2, "an open once call is in doubt: reconcile"),
            Message(0, 1, "late Commit under fence 1"),
            Message(1, 0, "refused: superseded"),
            Message(2, 1, "Commits under fence 2"),
        ],
    )


LAYERS = [
    ("cli", "the command: output for people and scripts"),
    ("web", "the HTTP server, and who may use it"),
    ("mcp, integrations", "protocols, and other frameworks"),
    ("service", "what can be read and changed, for every front end"),
    ("agent", "the loop, tools, models, context, who must approve"),
    ("engine", "submit, workers, journal, leases, timers, effects"),
    ("settings", "environment variables, holdfast.toml, defaults"),
    ("store, effects", "one contract, four stores; tools that can check what happened"),
    ("process_fork", "keeps a forked process from using its parent's objects"),
    ("model", "pure data and pure decisions: no I/O, no clock"),
    ("redaction", "the known credentials, and their replacement"),
]
"""From the front ends to what all others use. ``make check`` refuses an import that goes up."""


def layers() -> str:
    """Draw the packages from top to bottom: each may import those below it."""
    parts = []
    for number, (name, text) in enumerate(LAYERS):
        y = 10 + 36 * number
        parts.append(
            f'<rect class="box" x="10" y="{y}" width="620" height="30" rx="7"/>'
            f'<text class="left name" x="24" y="{y + 19.5}">{escape(name)}</text>'
            f'<text class="left" x="170" y="{y + 19.5}">{escape(text)}</text>'
        )
    return _svg(640, 14 + 36 * len(LAYERS), parts)


TERMINAL_NAMES = {state.value: "bad" if state is TaskState.FAILED else "end" for state in TERMINAL}
EFFECT_ENDS = {"done": "end", "compensated": "end", "abandoned": "bad"}


def _states(
    places: Mapping[str, tuple[float, float]],
    moves: Mapping[tuple[str, str], str],
    bends: Mapping[tuple[str, str], float],
    ends: Mapping[str, str],
    caption: str,
) -> str:
    parts: list[str] = []
    for (source, target), meaning in moves.items():
        bend = bends.get((source, target), 26.0 if (target, source) in moves else 0.0)
        parts += _edge(places[source], places[target], meaning, bend)
    for name, (x, y) in places.items():
        kind = f"box {ends[name]}" if name in ends else "box"
        parts.append(
            f'<rect class="{kind}" x="{x - WIDTH / 2:g}" y="{y - HEIGHT / 2:g}" width="{WIDTH:g}" '
            f'height="{HEIGHT:g}" rx="9"/><text x="{x:g}" y="{y + 4.5:g}">{escape(name)}</text>'
        )
    width = max(x for x, _ in places.values()) + WIDTH + 20
    height = max(y for _, y in places.values()) + HEIGHT + 60
    parts.append(f'<text class="small" x="{width / 2:g}" y="{height - 14:g}">{escape(caption)}</text>')
    return _svg(width, height, parts)


def _edge(source: tuple[float, float], target: tuple[float, float], text: str, bend: float) -> Iterator[str]:
    """Draw an arrow from box to box. Two arrows in opposite directions bend away from each other."""
    (x1, y1), (x2, y2) = source, target
    length = hypot(x2 - x1, y2 - y1)
    across = ((y1 - y2) / length, (x2 - x1) / length)  # to the right of the arrow, on a page
    middle = ((x1 + x2) / 2 + across[0] * bend, (y1 + y2) / 2 + across[1] * bend)
    start, end = _border(source, middle), _border(target, middle)
    points = (f"{x:.0f} {y:.0f}" for x, y in (start, middle, end))
    yield '<path class="edge" d="M{} Q{} {}"/>'.format(*points)
    if text:
        x, y = (start[0] + 2 * middle[0] + end[0]) / 4, (start[1] + 2 * middle[1] + end[1]) / 4
        lines = _wrapped(text)
        for number, line in enumerate(lines):
            above = y - 5 + 12 * (number - len(lines) + 1)
            yield f'<text class="small" x="{x:.0f}" y="{above:.0f}">{escape(line)}</text>'


def _wrapped(text: str) -> list[str]:
    words, lines = text.split(), [""]
    for word in words:
        if len(lines[-1]) + len(word) > LABEL:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def _border(box: tuple[float, float], towards: tuple[float, float]) -> tuple[float, float]:
    """Return where the line from the middle of a box to a point leaves the box."""
    dx, dy = towards[0] - box[0], towards[1] - box[1]
    scale = min((WIDTH / 2 + 3) / abs(dx) if dx else 9e9, (HEIGHT / 2 + 3) / abs(dy) if dy else 9e9)
    return box[0] + dx * scale, box[1] + dy * scale


def _sequence(columns: Sequence[str], messages: Sequence[Message]) -> str:
    gap, top, row = 235.0, 24.0, 36.0
    xs = [130 + gap * number for number in range(len(columns))]
    height = top + 36 + row * len(messages) + 20
    parts = []
    for name, x in zip(columns, xs, strict=True):
        parts.append(f'<line class="life" x1="{x:g}" y1="{top + 18:g}" x2="{x:g}" y2="{height - 12:g}"/>')
        parts.append(
            f'<rect class="box" x="{x - 65:g}" y="{top - 18:g}" width="130" height="36" rx="9"/>'
            f'<text x="{x:g}" y="{top + 4.5:g}">{escape(name)}</text>'
        )
    for number, message in enumerate(messages):
        y = top + 50 + row * number
        x1, x2 = xs[message.source], xs[message.target]
        if message.source == message.target:
            wide = 8.0 + 6.4 * len(message.text)
            parts.append(
                f'<rect class="note" x="{x1 - wide / 2:g}" y="{y - 13:g}" width="{wide:g}" height="22" rx="5"/>'
            )
            parts.append(f'<text class="small" x="{x1:g}" y="{y + 2:g}">{escape(message.text)}</text>')
        else:
            tip = 3 if x2 > x1 else -3
            parts.append(f'<path class="edge" d="M{x1:g} {y + 6:g} L{x2 - tip:g} {y + 6:g}"/>')
            parts.append(f'<text class="small" x="{(x1 + x2) / 2:g}" y="{y:g}">{escape(message.text)}</text>')
    return _svg(xs[-1] + 165, height, parts)


def _svg(width: float, height: float, parts: Sequence[str]) -> str:
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" role="img">\n<style>{STYLE}</style>\n'
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#5b6b92"/></marker></defs>\n'
        f"{body}\n</svg>\n"
    )


def diagrams() -> dict[Path, str]:
    """Return the expected content of each file."""
    folder = ROOT / "docs/diagrams"
    drawn = {"task-life": task_life(), "effect-states": effect_states(), "step-commit": step_commit()}
    drawn |= {"take-over": take_over(), "layers": layers()}
    return {folder / f"{name}.svg": text for name, text in drawn.items()}


def main(arguments: Sequence[str]) -> int:
    """Write the diagrams, or check them; return the exit code."""
    parser = argparse.ArgumentParser(prog=COMMAND, description="Draw the diagrams of the docs.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a diagram is not up to date")
    check = parser.parse_args(arguments).check
    stale = [path for path, text in diagrams().items() if not path.exists() or path.read_text("utf-8") != text]
    for path in stale:
        if check:
            print(f"{path.relative_to(ROOT)} is not up to date; run: {COMMAND}", file=sys.stderr)
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(diagrams()[path], encoding="utf-8")
            print(f"wrote {path.relative_to(ROOT)}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

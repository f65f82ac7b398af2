"""What a random program is: a tree of nodes, and what happens to it, as data that can be printed, stored and shrunk."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

BRANCHES = frozenset({"gather", "group"})
"""Nodes whose parts run at the same time."""

NOTE = "note"
"""The task that transactions submit: it belongs to no program."""


@dataclass(frozen=True)
class Node:
    """One thing that a program does. Its id stays the same when other nodes are removed."""

    id: str
    op: str
    options: Mapping[str, Any] = field(default_factory=dict)
    parts: tuple[Node, ...] = ()

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - options are of all kinds
        return self.options.get(name)

    def walk(self) -> Iterator[Node]:
        """This node and everything below it."""
        yield self
        for part in self.parts:
            yield from part.walk()

    def lines(self, depth: int = 0) -> Iterator[str]:
        listed = " ".join(f"{name}={value!r}" for name, value in self.options.items() if value not in (None, False, 0))
        yield f"{'    ' * depth}{self.id}: {self.op} {listed}".rstrip()
        for part in self.parts:
            yield from part.lines(depth + 1)


@dataclass(frozen=True)
class Fault:
    """What ends, or troubles, one life of a worker.

    ``commit`` counts the Commits of that life, ``act`` what its steps do to the world. One of them says when.
    """

    kind: str
    """die before, die after, freeze, hand back, jump"""
    commit: int = 0
    act: int = 0
    lapse: bool = False
    """Its tasks go to others when the lease is over, and not at once."""
    deploy: bool = False
    """The next life has version 2 of the code."""
    seconds: float = 0.0
    """By how much a clock that is set jumps."""


@dataclass(frozen=True)
class Case:
    """A program, how its task is declared, and what people and accidents do to it."""

    seed: int
    store: str
    body: Node
    features: tuple[str, ...] = ()
    attempts: int = 3
    blocking: bool = False
    rejections: int = 0
    """How many rounds the verifier rejects."""
    deadline: float | None = None
    revive: tuple[str, ...] = ()
    """What a person does each time the task has failed: resume or retry."""
    cancel_after: int | None = None
    """After so many records a person cancels the task."""
    fork_after: int | None = None
    faults: tuple[Fault, ...] = ()
    lost: float = 0.0
    """The part of the store's answers that is lost."""
    read_only: int = 0
    """The store can only be read for a while, from this write of each life on; 0: never."""
    full: int = 0
    """The disk of the store is full for a while, from this write of each life on; 0: never."""
    away: int = 0
    """The store cannot be reached for a while: in this process from this call of each life on, with real processes once
    there are so many records; 0: never."""
    prune_after: int | None = None
    """After so many records a person prunes what has ended."""
    pause_after: int | None = None
    """After so many records a person pauses the task, and lets it go on when it has left its worker, or later."""
    concurrency: int | None = None
    """How many tasks of the program may be at work, over all lives together; a person changes it now and then.
    Then they take turns as well, most of the time."""
    limited_tasks: int = 0
    """How many of its tasks may be at work at once, over all workers; 0: any number."""
    limited_steps: int = 0
    """How many of its steps with a limit may be under way at once; 0: none has a limit."""
    replaced: int = 0
    """The first life finds another store at the path, from this Commit on; 0: never."""

    def text(self) -> str:
        """The whole case, for people."""
        listed = {
            name: value
            for name, value in asdict(self).items()
            if name not in {"body", "faults", "features"} and value not in (None, False, 0, 0.0, ())
        }
        lines = [" ".join(f"{name}={value!r}" for name, value in listed.items())]
        lines += [f"fault: {fault}" for fault in self.faults]
        return "\n".join([*lines, *self.body.lines()])

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def case_from_json(text: str) -> Case:
    """Read what ``Case.to_json`` wrote."""
    data: dict[str, Any] = json.loads(text)
    data |= {name: tuple(data[name]) for name in ("features", "revive")}
    data |= {"body": _node(data["body"]), "faults": tuple(Fault(**fault) for fault in data["faults"])}
    return Case(**data)


def _node(data: Mapping[str, Any]) -> Node:
    return Node(data["id"], data["op"], data["options"], tuple(map(_node, data["parts"])))


def without(node: Node, node_id: str) -> Node:
    """Return the tree without one of its nodes and what is below that."""
    parts = tuple(without(part, node_id) for part in node.parts if part.id != node_id)
    return node if parts == node.parts else replace(node, parts=parts)


def unwrapped(node: Node, node_id: str) -> Node:
    """Return the tree with the parts of one of its nodes in that node's place."""
    parts: list[Node] = []
    for part in node.parts:
        parts += part.parts if part.id == node_id else [unwrapped(part, node_id)]
    return replace(node, parts=tuple(parts))

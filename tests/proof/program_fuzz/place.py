"""Where in a program the interpreter is, and what that place is called."""

from __future__ import annotations

from dataclasses import dataclass

from tests.proof.program_fuzz.grammar import Node


@dataclass(frozen=True)
class Place:
    """Where the interpreter is: in which task, in which turn of its loops."""

    task: str
    """The label of the task: of a child, that of its parent and the place that submits it."""
    round: int
    task_id: str
    index: str = ""
    prefix: str = ""
    """Of the keys in the journal, where they are not the node's own."""
    branch: str = ""

    def label(self, node: Node) -> str:
        return f"{self.task}/{node.id}{self.index}"

    def key(self, node: Node) -> str | None:
        return f"{node.id}{self.index}" if node["keyed"] else None

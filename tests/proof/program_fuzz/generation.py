"""Making random cases. Every choice comes from the seed, and every feature can be left out."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

from tests.proof.program_fuzz.grammar import Case, Fault, Node

NODES = (
    "pure plain once sleep event child approval ask transaction machine artifact draw charge patch "
    "agent outside stumble broken loop gather group nested handled"
)
REFINEMENTS = (
    "blocking undo once_undo repeat carried nested_once nested_retry nested_wait nested_undo nested_names child_rounds "
    "undo_again undo_search message outside_children fork_outside kept approved submits"
    "  fork_children fork_draws limits"
)
PEOPLE = "verifier revive fork cancel deadline prune pause places"
ACCIDENTS = "die act freeze hand_back jump deploy lost read_only full away replaced lapse"
EVERYTHING = frozenset(f"{NODES} {REFINEMENTS} {PEOPLE} {ACCIDENTS}".split())
LEAVES = [
    "pure",
    "plain",
    "once",
    "once",
    "sleep",
    "event",
    "child",
    "agent",
    "outside",
    "approval",
    "ask",
    "transaction",
    "machine",
    "artifact",
    "draw",
    "charge",
    "patch",
    "stumble",
    "broken",
]
WAITS = frozenset({"sleep", "event", "child", "agent", "outside", "approval", "ask"})
DEEPEST = 3


@dataclass(frozen=True)
class Place:
    """Where in a program the next node stands, and so what it may be."""

    depth: int = 0
    parallel: bool = False
    """Beside other branches: names need explicit keys."""
    inside_once: bool = False
    inside_step: bool = False
    blocking: bool = False
    """In the code of a blocking task: steps around others are threads, and so are branches."""
    handled: bool = False
    """Below a node that catches failures."""
    children: int = 0
    looped: bool = False


def make_case(seed: int, store: str, *, features: Collection[str] = EVERYTHING) -> Case:
    """Return the case of this seed for a kind of store."""
    return _Maker(seed, store, frozenset(features)).case()


class _Maker:
    def __init__(self, seed: int, store: str, features: frozenset[str]) -> None:
        self.seed = seed
        self.dice = random.Random(f"program {seed} on {store}")
        self.limit_dice = random.Random(f"limits {seed} on {store}")  # apart: the programs stay what they were
        self.features = features
        self.numbers = itertools.count(1)
        self.store = store

    def has(self, feature: str, chance: float) -> bool:
        # The dice are thrown in any case, so that leaving a feature out changes little else.
        return (self.dice.random() < chance) & (feature in self.features)

    def case(self) -> Case:
        blocking = self.has("blocking", 0.12)
        made = Case(
            seed=self.seed,
            store=self.store,
            features=tuple(sorted(self.features)),
            blocking=blocking,
            body=Node("n0", "seq", {}, self.parts(Place(blocking=blocking), 2, 5)),
            attempts=self.dice.choice([2, 3, 5]),
            rejections=self.dice.choice([1, 1, 2]) if self.has("verifier", 0.35) else 0,
            deadline=self.dice.choice([5.0, 40.0, 300.0]) if self.has("deadline", 0.1) else None,
            revive=tuple(self.dice.choice(["resume", "retry"]) for _ in range(2)) if self.has("revive", 0.6) else (),
            cancel_after=self.dice.randint(2, 40) if self.has("cancel", 0.15) else None,
            fork_after=self.dice.randint(4, 40) if self.has("fork", 0.25) else None,
            faults=tuple(fault for _ in range(self.dice.choice([0, 1, 2, 3, 4])) if (fault := self.fault())),
            lost=0.2 if self.has("lost", 0.15) else 0.0,
            read_only=self.dice.randint(1, 20) if self.has("read_only", 0.2) else 0,
            full=self.dice.randint(1, 20) if self.has("full", 0.2) else 0,
            away=self.dice.randint(4, 60) if self.has("away", 0.2) else 0,
            prune_after=self.dice.randint(4, 60) if self.has("prune", 0.25) else None,
            replaced=self.dice.randint(1, 16) if self.has("replaced", 0.2) else 0,
            pause_after=self.dice.randint(1, 40) if self.has("pause", 0.3) else None,
            concurrency=self.dice.choice([1, 1, 2, 3]) if self.has("places", 0.3) else None,
        )
        if "limits" in self.features:
            limits = self.limit_dice
            made = replace(made, limited_tasks=limits.choice([0, 0, 1, 2]), limited_steps=limits.choice([0, 1, 2]))
        ops = {node.op for node in made.body.walk()}
        if "fork_children" not in self.features and "child" in ops:
            made = replace(made, fork_after=None)
        inside = {inner.op for node in made.body.walk() if node.op == "nested" for inner in node.walk()}
        if "fork_draws" not in self.features and "draw" in inside:
            made = replace(made, fork_after=None)
        if "undo_again" not in self.features and any(node["undo"] for node in made.body.walk()):
            made = replace(made, revive=())
        return made

    def fault(self) -> Fault | None:
        kind, feature = self.dice.choice(
            [
                ("die before", "die"),
                ("die after", "die"),
                ("die before", "act"),
                ("die after", "act"),
                ("freeze", "freeze"),
                ("hand back", "hand_back"),
                ("jump", "jump"),
            ]
        )
        when = self.dice.choice([1, 2, 3, 4, 5, 7, 9, 12, 16])
        lapse, deploy = self.has("lapse", 0.2), self.has("deploy", 0.25)
        seconds = self.dice.choice([-30.0, -5.0, 5.0, 3600.0])
        if feature not in self.features or (kind, self.store) == ("jump", "postgres"):  # that server has its own clock
            return None
        return Fault(
            kind,
            commit=0 if feature == "act" else when,
            act=min(when, 5) if feature == "act" else 0,
            lapse=lapse,
            deploy=deploy,
            seconds=seconds if kind == "jump" else 0.0,
        )

    def parts(self, place: Place, fewest: int, most: int) -> tuple[Node, ...]:
        return tuple(self.node(place) for _ in range(self.dice.randint(fewest, most)))

    def node(self, place: Place) -> Node:
        makers: dict[str, Callable[[Place], tuple[dict[str, Any], tuple[Node, ...]]]] = {
            op: getattr(self, f"_{op}") for op in self.allowed(place)
        }
        op = self.dice.choice(self.allowed(place)) if makers else "draw"
        node_id = f"n{next(self.numbers)}"
        options, parts = makers[op](place) if makers else ({}, ())
        if op not in {"draw", "stumble", "broken", "gather", "group", "loop", "handled"}:
            # A name without a key is counted: the second is name#2. Branches have no order to count in.
            # Inside a step they are counted apart from those outside only where steps are scopes.
            flat = place.inside_step and "nested_names" not in self.features
            options["keyed"] = (self.dice.random() < 0.7) or place.parallel or flat
        return Node(node_id, op, options, parts)

    def allowed(self, place: Place) -> list[str]:
        """What may stand here; more often what is listed more often."""
        ops = list(LEAVES)
        if place.depth < DEEPEST:
            ops += ["loop", "gather", "group", "nested", "nested", "handled", "handled"]
        banned: set[str] = set()
        if place.blocking:
            banned |= {"group", "machine"}
        if place.inside_once or (place.inside_step and "nested_wait" not in self.features):
            banned |= WAITS | {"machine"}
        if place.looped and place.parallel:
            banned |= {"machine"}  # its name has no key=, and branches of two turns may not share one
        if place.children >= 2:
            banned |= {"child"}
        if place.handled:
            banned |= {"stumble"}  # it has another result each time: nothing may depend on that
        if self.store == "json":
            banned |= {"transaction"}
        return [op for op in ops if op in self.features and op not in banned]

    # Leaves

    def _pure(self, place: Place) -> tuple[dict[str, Any], tuple[Node, ...]]:
        options = self._tries(place)
        is_removable = "deploy" in self.features and self.dice.random() < 0.3
        return {**options, "removable": is_removable, "limited": self._limited()}, ()

    def _plain(self, place: Place) -> tuple[dict[str, Any], tuple[Node, ...]]:
        return {**self._tries(place), "undo": self._undo(place), "limited": self._limited()}, ()

    def _tries(self, place: Place) -> dict[str, Any]:
        blocking = self.has("blocking", 0.2) and not place.inside_step
        return {"fails": self.dice.choice([0, 0, 0, 1, 2]), "retry": self.dice.choice([1, 2, 3]), "blocking": blocking}

    def _limited(self) -> bool:
        """Only what has no steps inside it: nothing waits for a permit while it has one."""
        return self.limit_dice.random() < 0.4

    def _undo(self, place: Place) -> str | None:
        kind = self.dice.choice(["plain", "once"])
        is_wanted = self.has("undo", 0.25)
        if not is_wanted or place.inside_once or (place.inside_step and "nested_undo" not in self.features):
            return None
        return kind if "once_undo" in self.features else "plain"

    def _once(self, place: Place) -> tuple[dict[str, Any], tuple[Node, ...]]:
        calls = ["ok", "ok", "ok", "absent", "lost before", "lost after", "hangs after"]
        script = [call for _ in range(self.dice.randint(0, 2)) if (call := self.dice.choice(calls)) != "ok"]
        undo = self._undo(place)
        blocking = self.has("blocking", 0.2) and "hangs after" not in script and not place.inside_step
        return {
            "script": script,
            "reconcile": self.dice.random() < 0.6,
            "retry": self.dice.choice([1, 2, 3]),
            "blocking": blocking,
            "undo": undo,
            "repeat": self.has("repeat", 0.1) and undo is None,
            "carried": self.has("carried", 0.15) and not blocking and undo is None,
            "limited": self._limited(),
        }, ()

    def _sleep(self, _: Place) -> tuple[dict[str, Any], tuple[Node, ...]]:
        return {"seconds": self.dice.choice([0.5, 10.0])}, ()

    def _event(self, _: Place) -> tuple[dict[str, Any], tuple[Node, ...]]:
        return {}, ()

    def _approval(self, _: Place) -> tuple[dict[str, Any], tuple[Node, ...]]:
        return {"rejected": self.dice.random() < 0.2}, ()

    def _ask(self, _: Place) -> tuple[dict[str, Any], tuple[Node, ...]]:
        return {}, ()

    def _transaction(self, _: Place) -> tuple[dict[str, Any], tuple[Node, ...]]:
        return {"fails": self.dice.choice([0, 0, 0, 1]), "submits": self.has("submits", 0.5)}, ()

    def _artifact(self, _: Place) -> tuple[dict[str, Any], tuple[Node, ...]]:
        return {"kept": self.has("kept", 0.4)}, ()

    def _charge(self, _: Place) -> tuple[dict[str, Any], tuple[Node, ...]]:
        return {}, ()

    def _patch(self, _: Place) -> tuple[dict[str, Any], tuple[Node, ...]]:
        return {}, ()

    def _draw(self, _: Place) -> tuple[dict[str, Any], tuple[Node, ...]]:
        return {}, ()

    def _stumble(self, _: Place) -> tuple[dict[str, Any], tuple[Node, ...]]:
        return {"times": self.dice.choice([1, 1, 2])}, ()

    def _broken(self, _: Place) -> tuple[dict[str, Any], tuple[Node, ...]]:
        return {}, ()

    # What has parts

    def _child(self, place: Place) -> tuple[dict[str, Any], tuple[Node, ...]]:
        blocking = self.has("blocking", 0.2)
        inner = Place(depth=place.depth + 1, blocking=blocking, children=place.children + 1)
        many = self.dice.choice([1, 1, 2, 3])
        return {
            "many": many,
            "blocking": blocking,
            "attempts": self.dice.choice([1, 2]),
            "claimable": self.has("outside_children", 0.3),
        }, self.parts(inner, 1, 3)

    def _agent(self, _: Place) -> tuple[dict[str, Any], tuple[Node, ...]]:
        return {
            "reconcile": self.dice.random() < 0.6,
            "helped": self.dice.random() < 0.3,
            "messages": self.dice.choice([1, 2, 3]) if self.has("message", 0.5) else 0,
            "approved": self.has("approved", 0.5),
            "checkpoint": self.dice.choice(["every_step", "every_iteration", "on_state_change"]),
        }, ()

    def _outside(self, _: Place) -> tuple[dict[str, Any], tuple[Node, ...]]:
        troubles = ["silent before", "silent after", "ask", "release"]
        return {
            "steps": self.dice.choice([1, 1, 2]),
            "troubles": [self.dice.choice(troubles) for _ in range(self.dice.choice([0, 0, 1, 2]))],
            "gives_up": self.dice.choice([0, 0, 0, 1]),
            "forked": self.has("fork_outside", 0.2),
        }, ()

    def _machine(self, place: Place) -> tuple[dict[str, Any], tuple[Node, ...]]:
        inner = replace(place, depth=place.depth + 1)
        return {}, self.parts(inner, 1, 3)

    def _loop(self, place: Place) -> tuple[dict[str, Any], tuple[Node, ...]]:
        inner = replace(place, depth=place.depth + 1, looped=True)
        return {"times": self.dice.choice([2, 3])}, self.parts(inner, 1, 2)

    def _gather(self, place: Place) -> tuple[dict[str, Any], tuple[Node, ...]]:
        return {}, self.parts(replace(place, depth=place.depth + 1, parallel=True), 2, 3)

    def _group(self, place: Place) -> tuple[dict[str, Any], tuple[Node, ...]]:
        return self._gather(place)

    def _nested(self, place: Place) -> tuple[dict[str, Any], tuple[Node, ...]]:
        once = self.has("nested_once", 0.3)
        inner = replace(place, depth=place.depth + 1, inside_step=True, inside_once=place.inside_once or once)
        retried = self.has("nested_retry", 0.7)
        return {
            "once": once,
            "fails": self.dice.choice([0, 1, 2]) if retried else 0,
            "retry": self.dice.choice([2, 3]) if retried else 1,
            "reconcile": self.dice.random() < 0.6,
            "undo": None if once else self._undo(place),
        }, self.parts(inner, 1, 3)

    def _handled(self, place: Place) -> tuple[dict[str, Any], tuple[Node, ...]]:
        return {}, self.parts(replace(place, depth=place.depth + 1, handled=True), 1, 3)

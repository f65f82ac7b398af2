"""Runs a program as Holdfast tasks, and notes what its nodes do to the world and what they return.

What a step is called with never names its task: a fork replays the calls of its origin. Labels come from outside.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from decimal import Decimal
from typing import Any, TypeVar

from holdfast import (
    Absent,
    ArtifactRef,
    Budget,
    Compensation,
    Context,
    Goto,
    Happened,
    Holdfast,
    Intent,
    Machine,
    Retry,
    StatePatch,
    StepFailed,
    SyncContext,
    Transaction,
)
from holdfast.model.task import DEFAULT_QUEUE, HANDOVER
from tests.proof.program_fuzz.agents import make_agent
from tests.proof.program_fuzz.blocking import Awaited, drive
from tests.proof.program_fuzz.grammar import NOTE, Case, Node
from tests.proof.program_fuzz.outcomes import HANDLED, Broken, Declined, Flaky, truth
from tests.proof.program_fuzz.place import Place
from tests.proof.program_fuzz.records import Records, checksum

R = TypeVar("R")

TABLE = "fuzz_rows"
TASKS, STEPS = "tasks", "steps"
"""Names of limits."""
A_MICRO = Decimal("0.000001")
"""What a program charges; its agents count steps and tokens by themselves, and cost nothing."""
AMPLE = Budget(max_steps=1_000_000)
"""A limit that is never reached, so that what the children count is counted for the task above them too."""
TIMEOUT, SETTLE = 4.0, 0.5
"""Seconds of a once call. What is too slow is in doubt, and found out: no verdict depends on speed."""

STRUCTURE = frozenset({"seq", "loop", "gather", "group"})
"""Nodes whose value is not kept anywhere: it is that of their parts, and another version may have other parts."""


async def set_limits(hold: Holdfast, case: Case) -> None:
    """Set the limits of a case, before its task is submitted."""
    for name, concurrency in ((TASKS, case.limited_tasks), (STEPS, case.limited_steps)):
        if concurrency:
            await hold.limit(name, concurrency=concurrency)


class Interpreter:
    """One version of the code, in one process."""

    def __init__(
        self,
        case: Case,
        records: Records,
        hold: Holdfast,
        *,
        version: int = 1,
        on_act: Callable[[str], Awaitable[None]] | None = None,
        aside: Callable[[], AbstractContextManager[None]] = nullcontext,
        pace: float = 1.0,
    ) -> None:
        self.case = case
        self.records = records
        self.hold = hold
        self.version = version
        self.on_act = on_act
        """Awaited before and after whatever an async step does: where lives end."""
        self.aside = aside
        """Entered by the code of blocking tasks, which mostly waits in its thread."""
        self._pace = pace
        """What all its seconds are multiplied with."""
        self._timeout, self._settle = TIMEOUT * pace, SETTLE * pace
        self.nodes = {node.id: node for node in case.body.walk()}
        self._machines: dict[str, Any] = {}
        self._labels: dict[str, str] = {}
        """Of tasks, by id, for the handlers of machines: a fork's machine has the data of its origin."""
        self._define()

    # The application

    def _define(self) -> None:
        hold, case = self.hold, self.case
        attempts = self._tries(case.attempts)

        async def main(ctx: Context) -> Any:  # noqa: ANN401
            return await self._task(ctx, case.body, ctx.task_id)

        def blocking_main(ctx: SyncContext) -> Any:  # noqa: ANN401
            with self.aside():
                return drive(self._task(Awaited(ctx), case.body, ctx.task_id))

        defined = hold.task(
            name="main", retry=attempts, deadline=case.deadline, budget=AMPLE, limits=self._task_limits
        )(blocking_main if case.blocking else main)
        if case.rejections:

            async def verify(ctx: Context, result: Any) -> bool:  # noqa: ANN401, ARG001
                return ctx.task.round > case.rejections

            defined.verify(verify)

        async def note(ctx: Context, label: str) -> None:
            del ctx
            self.records.write("noted", label)

        hold.task(name=NOTE, retry=attempts)(note)
        for node in self.nodes.values():
            if node.op == "child":
                self._define_child(node)
            elif node.op == "machine":
                self._define_machine(node)
            elif node.op == "agent":
                limits = {"timeout": self._timeout, "settle": self._settle}
                agent = make_agent(node, self.records, self._tries(2), pass_by=self._pass_by, look=self._look, **limits)
                self.hold.register(agent)

    @property
    def _task_limits(self) -> list[str]:
        return [TASKS] if self.case.limited_tasks else []

    def _step_limits(self, node: Node) -> list[str]:
        # With real processes and real time, only those whose permits come back soon after a death.
        is_limited = node["limited"] and self.case.limited_steps and (self._pace == 1.0 or node.op == "once")
        return [STEPS] if is_limited else []

    @contextmanager
    def _noted(self, node: Node, label: str) -> Iterator[None]:
        """Note when a step under a limit begins and ends."""
        if not self._step_limits(node):
            yield
            return
        self.records.write("in", label, pid=os.getpid())
        try:
            yield
        finally:
            self.records.write("out", label, pid=os.getpid())

    def _define_child(self, node: Node) -> None:
        body = Node(f"{node.id}b", "seq", {}, node.parts)

        async def child(ctx: Context, label: str) -> Any:  # noqa: ANN401
            return await self._task(ctx, body, label)

        def blocking_child(ctx: SyncContext, label: str) -> Any:  # noqa: ANN401
            with self.aside():
                return drive(self._task(Awaited(ctx), body, label))

        retry = self._tries(node["attempts"] or 1)
        self.hold.task(name=f"child-{node.id}", retry=retry, limits=self._task_limits)(
            blocking_child if node["blocking"] else child
        )

    def _define_machine(self, node: Node) -> None:
        states = [f"s{number}" for number in range(len(node.parts) + 1)]
        machine: Machine[Any] = Machine(
            f"machine-{node.id}",
            initial=states[0],
            transitions={here: [there] for here, there in itertools.pairwise(states)},
            final=[states[-1]],
        )
        for number, part in enumerate(node.parts):

            async def visit(ctx: Context, data: Any, part: Node = part, number: int = number) -> Goto[Any]:  # noqa: ANN401
                index, branch = data["at"]
                place = Place(
                    self._labels[ctx.task_id], ctx.task.round, ctx.task_id, index, prefix="machine", branch=branch
                )
                self.records.write("enters", place.label(node), **self._about(node, place), state=number)
                value = await self.run(ctx, part, place)
                return Goto(states[number + 1], {**data, "values": [*data["values"], value]})

            machine.state(states[number])(visit)
        self._machines[node.id] = self.hold.register(machine)

    async def _task(self, ctx: Any, body: Node, label: str) -> Any:  # noqa: ANN401
        self._labels[ctx.task_id] = label
        values = await self.run(ctx, body, Place(label, ctx.task.round, ctx.task_id))
        if self.version > 1:
            values.append(await ctx.step("added", self._added, key="added in version 2"))
        return values

    async def _added(self) -> str:
        return "added"

    # Nodes

    async def run(self, ctx: Any, node: Node, place: Place) -> Any:  # noqa: ANN401
        """Do what a node says, and note what it returned."""
        do: Callable[[Any, Node, Place], Coroutine[Any, Any, Any]] = getattr(self, f"_run_{node.op}")
        value = await do(ctx, node, place)
        if _is_kept(node):
            self.records.write("value", place.label(node), **self._about(node, place), sum=checksum(value))
        return value

    def _about(self, node: Node, place: Place) -> dict[str, object]:
        key = None if place.prefix else place.key(node)
        return {"node": node.id, "task": place.task_id, "round": place.round, "key": key, "branch": place.branch}

    async def _run_seq(self, ctx: Any, node: Node, place: Place) -> Any:  # noqa: ANN401
        return [await self.run(ctx, part, place) for part in node.parts if not (self.version > 1 and part["removable"])]

    async def _run_loop(self, ctx: Any, node: Node, place: Place) -> Any:  # noqa: ANN401
        turns = [replace(place, index=f"{place.index}[{turn}]") for turn in range(node["times"])]
        return [await self._run_seq(ctx, node, turn) for turn in turns]

    async def _run_gather(self, ctx: Any, node: Node, place: Place) -> Any:  # noqa: ANN401
        branches = self._branches(ctx, node, place)
        in_threads = isinstance(ctx, Awaited)
        ended = ctx.gathered(branches) if in_threads else await asyncio.gather(*branches, return_exceptions=True)
        for one in ended:
            if isinstance(one, BaseException):
                raise one
        return ended

    async def _run_group(self, ctx: Any, node: Node, place: Place) -> Any:  # noqa: ANN401
        async with asyncio.TaskGroup() as group:
            branches = [group.create_task(branch) for branch in self._branches(ctx, node, place)]
        return [branch.result() for branch in branches]

    def _branches(self, ctx: Any, node: Node, place: Place) -> list[Coroutine[Any, Any, Any]]:  # noqa: ANN401
        return [
            self.run(ctx, part, replace(place, branch=f"{place.branch}/{part.id}"))
            for part in node.parts
            if not (self.version > 1 and part["removable"])
        ]

    async def _run_handled(self, ctx: Any, node: Node, place: Place) -> Any:  # noqa: ANN401
        try:
            await self._run_seq(ctx, node, place)
        except HANDLED as error:
            return f"handled {type(error).__name__}"
        except BaseExceptionGroup as errors:
            if errors.split(HANDLED)[1] is not None:
                raise
            return "handled a group"
        return "went well"

    async def _run_pure(self, ctx: Any, node: Node, place: Place) -> Any:  # noqa: ANN401
        return await self._step(ctx, node, place, effect="pure")

    async def _run_plain(self, ctx: Any, node: Node, place: Place) -> Any:  # noqa: ANN401
        return await self._step(ctx, node, place, compensate=self._compensation(node, place))

    async def _step(self, ctx: Any, node: Node, place: Place, **terms: Any) -> Any:  # noqa: ANN401
        label, about = place.label(node), self._about(node, place)

        def begin() -> str:
            self.records.write("ran", label, **about)
            runs = self.records.count("ran", label)
            if runs <= node["fails"]:
                raise (SystemExit if _exits(node) else Flaky)(label)
            return f"{label} run {runs}"

        def end(value: str, effect_id: str) -> str:
            if node["undo"]:
                self.records.write("act", label, **about, undo=node["undo"], effect=effect_id, value=value)
            return value

        async def work(effect_id: str) -> str:
            with self._noted(node, label):
                await self._pass_by(label)
                value = end(begin(), effect_id)
                await self._pass_by(label)
            return value

        def work_blocking(effect_id: str) -> str:
            with self._noted(node, label):
                return end(begin(), effect_id)

        function: Callable[..., Any] = work_blocking if node["blocking"] else work
        function.__name__ = f"{function.__name__}_of_version_{self.version}"
        limits = self._step_limits(node)
        return await ctx.step(node.op, function, key=place.key(node), retry=self._retry(node), limits=limits, **terms)

    async def _run_once(self, ctx: Any, node: Node, place: Place) -> Any:  # noqa: ANN401
        label = f"{place.label(node)}@{place.round}" if node["repeat"] else place.label(node)
        about = self._about(node, place) | {"undo": node["undo"], "once": True}

        def begin(effect_id: str) -> tuple[str, str]:
            """Act, if this call is meant to; return what becomes of the call, and its result."""
            self.records.write("called", label)
            call = self.records.count("called", label)
            kind, _, when = (node["script"][call - 1] if call <= len(node["script"]) else "ok").partition(" ")
            value = f"{label} call {call}"
            if kind == "absent":
                raise Declined(label)
            if kind == "ok" or when == "after":
                self.records.write("act", label, **about, effect=effect_id, value=value)
            return kind, value

        async def pay(node_id: str, index: str, effect_id: str) -> str:  # noqa: ARG001 - the arguments of a real call
            with self._noted(node, label):
                await self._pass_by(label)
                kind, value = begin(effect_id)
                await self._pass_by(label)
                if kind == "lost":
                    raise ConnectionResetError(label)
                if kind == "hangs":
                    await asyncio.Event().wait()
            return value

        def pay_blocking(node_id: str, index: str, effect_id: str) -> str:  # noqa: ARG001
            with self._noted(node, label):
                kind, value = begin(effect_id)
                if kind == "lost":
                    raise ConnectionResetError(label)
            return value

        function: Callable[..., Any] = pay_blocking if node["blocking"] else pay
        key, arguments = place.key(node) or "once", (node.id, place.index)
        if node["carried"] and node["keyed"]:
            intent = Intent(key, function, *arguments, timeout=self._timeout, settle=self._settle)
            await ctx.step("choose", _choose, key=f"{key} chosen", arms=lambda _: [intent])
        return await ctx.step(
            "once",
            function,
            *arguments,
            key=place.key(node),
            effect="once",
            retry=self._retry(node),
            timeout=self._timeout,
            settle=self._settle,
            absent_on=Declined,
            reconcile=self._look if node["reconcile"] else None,
            compensate=self._compensation(node, place),
            repeat=bool(node["repeat"]),
            limits=self._step_limits(node),
        )

    async def _look(self, effect_id: str, *_: object) -> Happened | Absent:
        """Tell the truth about a call."""
        return truth(self.records, effect_id)

    def _compensation(self, node: Node, place: Place) -> Compensation | None:
        if node["undo"] is None:
            return None
        label, about = place.label(node), self._about(node, place)

        async def undo(result: Any, *_: object, effect_id: str) -> None:  # noqa: ANN401
            await self._pass_by(label)
            self.records.write("undo", label, **about, effect=effect_id, value=result, how=node["undo"])
            await self._pass_by(label)

        if node["undo"] == "once":
            return Compensation(undo, effect="once", reconcile=self._look, timeout=self._timeout, settle=self._settle)
        return Compensation(undo)

    async def _run_nested(self, ctx: Any, node: Node, place: Place) -> Any:  # noqa: ANN401
        label, about = place.label(node), self._about(node, place) | {"undo": node["undo"]}
        inner = replace(place, prefix=place.prefix or "nested", branch=f"{place.branch}/{node.id}")

        def finish(values: Any, effect_id: str) -> Any:  # noqa: ANN401
            self.records.write("ran", label, **about)
            if self.records.count("ran", label) <= (node["fails"] or 0):
                raise Declined(label)
            if node["once"] or node["undo"]:
                self.records.write("act", label, **about, once=bool(node["once"]), effect=effect_id, value=values)
            return values

        async def work(*_: str, effect_id: str) -> Any:  # noqa: ANN401
            values = finish(await self._run_seq(ctx, node, inner), effect_id)
            await self._pass_by(label)
            return values

        def work_blocking(*_: str, effect_id: str) -> Any:  # noqa: ANN401
            with self.aside():
                values = drive(self._run_seq(ctx, node, inner))
            return finish(values, effect_id)

        function: Callable[..., Any] = work_blocking if isinstance(ctx, Awaited) else work

        if node["once"]:
            return await ctx.step(
                "nested",
                function,
                node.id,
                place.index,
                key=place.key(node),
                effect="once",
                retry=self._retry(node),
                timeout=25 * self._timeout,
                settle=self._settle,
                absent_on=(Declined, Flaky, Broken, StepFailed, ExceptionGroup),
                reconcile=self._look if node["reconcile"] else None,
            )
        return await ctx.step(
            "nested", function, key=place.key(node), retry=self._retry(node), compensate=self._compensation(node, place)
        )

    async def _run_sleep(self, ctx: Any, node: Node, place: Place) -> Any:  # noqa: ANN401
        await ctx.sleep(node["seconds"] * self._pace, key=place.key(node))

    async def _run_event(self, ctx: Any, node: Node, place: Place) -> Any:  # noqa: ANN401
        channel = f"{place.label(node)}@{place.round}"
        self.records.write("hears", channel)
        return await ctx.wait_event(channel, key=place.key(node) or f"event-{node.id}{place.index}")

    async def _run_approval(self, ctx: Any, node: Node, place: Place) -> Any:  # noqa: ANN401
        question = f"{'reject' if node['rejected'] else 'approve'} {place.label(node)}"
        decided = await ctx.approval(question, key=place.key(node))
        return decided.by

    async def _run_ask(self, ctx: Any, node: Node, place: Place) -> Any:  # noqa: ANN401
        return await ctx.ask(f"answer {place.label(node)}", key=place.key(node))

    async def _run_transaction(self, ctx: Any, node: Node, place: Place) -> Any:  # noqa: ANN401
        label = place.label(node)
        mark = "%s" if self.case.store == "postgres" else "?"

        async def book(tx: Transaction) -> str:
            self.records.write("booked", label, submits=bool(node["submits"]))
            await tx.execute(f"INSERT INTO {TABLE} VALUES ({mark})", label)
            if node["submits"]:
                await tx.submit(NOTE, label)
            if self.records.count("booked", label) <= node["fails"]:
                raise Flaky(label)
            return label

        value = await ctx.transaction("transaction", book, key=place.key(node))
        self.records.write("row", label)
        return value

    async def _run_artifact(self, ctx: Any, node: Node, place: Place) -> Any:  # noqa: ANN401
        async def write() -> str:
            artifact = await self.hold.artifacts.write(node.id.encode())
            return artifact.id

        written = await ctx.step("artifact", write, key=place.key(node))
        if node["kept"]:
            kept = ArtifactRef(artifact_id=written, type="text/plain", summary=node.id, bytes=len(node.id))
            patching = ctx.patch(StatePatch(add_artifacts=(kept,)), key=f"{node.id}{place.index} kept")
            await self._counted("patch", node, place, patching)
        return written

    async def _run_draw(self, ctx: Any, node: Node, place: Place) -> Any:  # noqa: ANN401
        key = f"{node.id}{place.index}"
        ctx.now(key=key)  # may differ as long as nothing durable follows it
        return [ctx.random(key=key), str(ctx.uuid(key=key))]

    async def _run_charge(self, ctx: Any, node: Node, place: Place) -> Any:  # noqa: ANN401
        await self._counted("charge", node, place, ctx.charge(cost=A_MICRO, key=place.key(node)))

    async def _run_patch(self, ctx: Any, node: Node, place: Place) -> Any:  # noqa: ANN401
        patch = StatePatch(set_flags=(f"{node.id}{place.index} in round {place.round}",))
        state = await self._counted("patch", node, place, ctx.patch(patch, key=place.key(node)))
        return sorted(state.risk_flags)

    async def _counted(self, what: str, node: Node, place: Place, call: Awaitable[R]) -> R:
        """Note that the program wants something counted, and that it was."""
        self.records.write(f"{what} begun", f"{place.label(node)}@{place.round}", owner=place.task_id)
        answer = await call
        self.records.write(f"{what} done", f"{place.label(node)}@{place.round}", owner=place.task_id)
        return answer

    async def _run_stumble(self, ctx: Any, node: Node, place: Place) -> Any:  # noqa: ANN401, ARG002
        label = place.label(node)
        self.records.write("stumbles", label)
        if self.records.count("stumbles", label) <= node["times"]:
            raise Flaky(label)

    async def _run_broken(self, ctx: Any, node: Node, place: Place) -> Any:  # noqa: ANN401, ARG002
        if not self.records.count("fixed", ""):
            raise Broken(place.label(node))

    async def _run_child(self, ctx: Any, node: Node, place: Place) -> Any:  # noqa: ANN401
        # Until children are taken over into new rounds, each round's child is an intent of its own.
        of_round = "" if "child_rounds" in self.case.features else f"@{place.round}"
        many = [replace(place, index=f"{place.index}[{number}]") for number in range(node["many"])]
        children = [
            await ctx.submit(
                f"child-{node.id}", f"{one.label(node)}{of_round}", key=one.key(node) or f"child-{node.id}{one.index}"
            )
            for one in many
        ]
        return [await child.result() for child in children]

    async def _run_agent(self, ctx: Any, node: Node, place: Place) -> Any:  # noqa: ANN401
        key = place.key(node) or f"agent-{node.id}{place.index}"
        return await (await ctx.submit(f"agent-{node.id}", place.label(node), key=key)).result()

    async def _run_outside(self, ctx: Any, node: Node, place: Place) -> Any:  # noqa: ANN401
        key = place.key(node) or f"outside-{node.id}{place.index}"
        return await (await ctx.submit(HANDOVER, place.label(node), key=key, queue=DEFAULT_QUEUE)).result()

    async def _run_machine(self, ctx: Any, node: Node, place: Place) -> Any:  # noqa: ANN401
        data = {"at": [place.index, place.branch], "values": []}
        reached = await self._machines[node.id](ctx, data)
        return reached.data["values"]

    def _retry(self, node: Node) -> Retry:
        return self._tries(node["retry"] or 1)

    def _tries(self, most: int) -> Retry:
        return Retry(max_attempts=most, initial=0.5 * self._pace, factor=8.0, jitter="none")

    async def _pass_by(self, label: str) -> None:
        if self.on_act is not None:
            await self.on_act(label)


def _is_kept(node: Node) -> bool:
    """Whether the value of a node is the same in another version of the code."""
    if node.op == "handled":  # whether it went well is not kept, and a part that failed may be gone
        return not any(part["removable"] for part in node.walk())
    return node.op not in STRUCTURE


def _exits(node: Node) -> bool:
    """Whether a step fails with what is not an Exception: every third one does, whatever the seed says."""
    return int(node.id.lstrip("abcdefghijklmnopqrstuvwxyz") or 1) % 3 == 0


async def _choose() -> None: ...

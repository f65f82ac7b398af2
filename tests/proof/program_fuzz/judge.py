"""Reports what was wrong: compares what the records say that happened with what Holdfast says that it did."""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from holdfast import QueueSettings, Task, TaskState
from holdfast.model.task import HANDOVER
from tests.proof.program_fuzz.grammar import NOTE, Case
from tests.proof.program_fuzz.office import Fork
from tests.proof.program_fuzz.outcomes import expected_errors
from tests.proof.program_fuzz.outside import label_of, node_of

Line = dict[str, Any]

LABELS = {"program": "fuzz"}
"""Of the root."""


@dataclass(frozen=True)
class Evidence:
    """All that is known when a case is over."""

    case: Case
    lines: tuple[Line, ...]
    tasks: dict[str, Task]
    root: str
    forks: tuple[Fork, ...]
    rows: tuple[str, ...]
    """What transactions wrote."""
    charged: int | None = None
    """What was counted against the budget of the root, by itself and all below it; None if the root was pruned."""
    kept: frozenset[str] = frozenset()
    """The tasks that are still stored."""
    left: tuple[Task, ...] = ()
    """What is still there after everything was over and was pruned."""
    queues: tuple[QueueSettings, ...] = ()
    """How full the queues with settings are."""
    feed: tuple[str, ...] = ()
    """Where the feed differs from what is stored."""


def judge(evidence: Evidence) -> Iterator[str]:
    """Yield each thing that was wrong."""
    if any(line["what"] == "unclear" for line in evidence.lines):
        return  # how a task ended is not known: it was pruned before it could be looked at
    for rule in RULES:
        yield from rule(evidence)


def _labels(evidence: Evidence) -> Iterator[str]:
    """Whatever comes from the program has its labels: children, sub-agents, forks, and what begins again."""
    for task in evidence.tasks.values():
        if task.labels != LABELS:
            yield f"task {task.name} has the labels {task.labels}"


def _feed(evidence: Evidence) -> Iterator[str]:
    """A reader that stopped and went on got everything, once and in order."""
    yield from (f"the feed: {line}" for line in evidence.feed)


def _queues_are_empty(evidence: Evidence) -> Iterator[str]:
    """What a queue counts is the truth: nothing is pending or at work any more."""
    for queue in evidence.queues:
        if queue.pending or queue.working:
            yield f"queue {queue.name} counts {queue.pending} pending and {queue.working} at work in the end"


def _no_odd_ends(evidence: Evidence) -> Iterator[str]:
    for task in evidence.tasks.values():
        if not task.state.is_terminal:
            yield f"task {task.name} is {task.state} in the end"
    ops = {node.op for node in evidence.case.body.walk()}
    is_searchable = "undo_search" in evidence.case.features or not ops & {"group", "machine"}
    is_searchable = is_searchable and not _mixes_versions(evidence.case)
    for line in evidence.lines:
        if line["what"] == "stuck" and is_searchable:
            yield f"a person had to see to an undo of {line['label']}: {line['note']}"
    for task in evidence.tasks.values():
        if task.state is TaskState.FAILED and isinstance(task.error, dict):
            kind = str(task.error.get("type")).rpartition(".")[2]
            is_refused = kind == "JournalMismatch" and "whose steps have been undone since" in str(task.error)
            if (
                kind not in expected_errors(evidence.case) and not is_refused
            ):  # a machine's past that was undone needs a retry
                yield f"task {task.name} failed by {kind}: {task.error.get('message')}"


def _mixes_versions(case: Case) -> bool:
    """Whether code with a step may follow code without it: a frozen process that a deploy has replaced.

    It may find the step open, and cannot come to what stands behind it. A person has to see to that then, who does not
    know whether an undo was under way.
    """
    has_removed = any(node["removable"] for node in case.body.walk())
    return has_removed and any(fault.kind == "freeze" and fault.deploy for fault in case.faults)


def _acts(evidence: Evidence) -> dict[str, list[tuple[int, Line]]]:
    """What was done and undone, by intent, with its place in the records."""
    acts: dict[str, list[tuple[int, Line]]] = defaultdict(list)
    for number, line in enumerate(evidence.lines):
        if line["what"] in {"act", "undo"}:
            acts[line["label"]].append((number, line))
    return acts


def _once(evidence: Evidence) -> Iterator[str]:
    """Each once-intent happens at most once, unless it was undone in between; each undo likewise."""
    excused = {"plain", "by hand"} if _mixes_versions(evidence.case) else {"plain"}
    for label, lines in _acts(evidence).items():
        standing = 0
        for _, line in lines:
            if line["what"] == "act" and standing and line.get("once"):
                yield f"{label} happened twice"
            if line["what"] == "undo" and standing <= 0 and line["how"] not in excused:
                yield f"{label} was undone more often than it happened"
            # An undo that may be repeated takes back what stands once: a second one of it takes back nothing.
            standing = standing + 1 if line["what"] == "act" else max(0, standing - 1)


def _returned(evidence: Evidence) -> Iterator[str]:
    """What a once step returned to the program did happen."""
    happened = {line["label"].partition("@")[0] for line in evidence.lines if line["what"] == "act"}
    once = {node.id for node in evidence.case.body.walk() if node.op == "once" or node["once"]}
    shared = {(fork.task_id, key) for fork in evidence.forks for key in fork.known}
    origin = {fork.task_id for fork in evidence.forks}
    for line in evidence.lines:
        is_claimed = (
            line["what"] == "value" and line["node"] in once and line["label"].partition("@")[0] not in happened
        )
        is_of_origin = line.get("task") in origin and (line["task"], line["key"]) in shared
        # The keys of a fork's counted names are not known here.
        if is_claimed and not is_of_origin and not (line["task"] in origin and line["key"] is None):
            yield f"{line['label']} returned, and never happened"


def _rows(evidence: Evidence) -> Iterator[str]:
    counts = Counter(evidence.rows)
    forks = {fork.task_id for fork in evidence.forks}
    for label, count in counts.items():
        if count > 1:
            yield f"transaction {label} was written {count} times"
    for line in evidence.lines:
        if line["what"] == "row" and not counts[line["label"]] and line["label"].partition("/")[0] not in forks:
            yield f"transaction {line['label']} returned, and was not written"


def _submitted_with_rows(evidence: Evidence) -> Iterator[str]:
    """A transaction that submits a task wrote its row and submitted one task, or neither. That task has no parent."""
    rows, notes = Counter(evidence.rows), [task for task in evidence.tasks.values() if task.name == NOTE]
    tasks = Counter(task.user_input[0] for task in notes)
    submits = {line["label"] for line in evidence.lines if line["what"] == "booked" and line["submits"]}
    for label in sorted(submits):
        if rows[label] != tasks[label]:
            yield f"transaction {label} wrote {rows[label]} rows, and submitted {tasks[label]} tasks"
    for task in notes:
        if task.parent_id is not None or task.state is not TaskState.COMPLETED:
            yield f"the task that {task.user_input[0]} submitted is {task.state}, a child of {task.parent_id}"


def _ended_badly(evidence: Evidence) -> set[str]:
    bad = {TaskState.FAILED, TaskState.CANCELLED}
    return {task.id for task in evidence.tasks.values() if task.state in bad}


def _undone(evidence: Evidence) -> Iterator[str]:
    """After a task failed or was cancelled, what it did and can undo is undone; after any other end, it stands."""
    bad = _ended_badly(evidence)
    values = {(line["label"], line["task"]): at for at, line in enumerate(evidence.lines) if line["what"] == "value"}
    returned = values.keys()
    taken_over = {line["label"] for line in evidence.lines if line["what"] == "finishes"}  # by an agent outside
    forgiven = {inner.id for node in evidence.case.body.walk() if node.op == "handled" for inner in node.walk()}
    for label, lines in _acts(evidence).items():
        last_at, last = lines[-1]
        stands = last["what"] == "act" and last["undo"] and last["task"] in bad
        if stands and (last.get("once") or (label, last["task"]) in returned):
            yield f"{label} was not undone, and its task ended as {evidence.tasks[last['task']].state}"
        # Begun again, the code may have seen this fail, and have handled that.
        is_forgiven = node_of(label) in forgiven and values.get((label, last["task"]), 0) < last_at
        if last["what"] == "undo" and last["task"] not in bad | taken_over and not is_forgiven:
            yield f"{label} was undone, and its task was {evidence.tasks[last['task']].state}"


def _undone_in_reverse(evidence: Evidence) -> Iterator[str]:
    """Of two effects of one branch the later one is undone first.

    One that replayed in a new round counts where the code of that round came by it: what stands before it there, and
    was done again, is what it now builds on. A step that is entered when an undo inside it is looked for does the same
    again under the same effect id: that is not a later effect.
    """
    came_by: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for number, line in enumerate(evidence.lines):
        if line["what"] == "value":
            came_by[line["task"], line["label"]].append((line["round"], number))
    pairs: dict[tuple[str, str], list[tuple[int, int, str]]] = defaultdict(list)
    for label, lines in _acts(evidence).items():
        began = {line["effect"]: number for number, line in reversed(lines) if line["what"] == "act"}
        for (_, line), (undone_at, undone) in itertools.pairwise(lines):
            # A person who undoes several by hand keeps no order.
            if (line["what"], undone["what"]) == ("act", "undo") and undone["how"] != "by hand":
                returns = [(rnd, at) for rnd, at in came_by[line["task"], label] if at < undone_at]
                last_round = max((rnd for rnd, _ in returns), default=0)
                first_there = min((at for rnd, at in returns if rnd == last_round), default=0)
                done_at = max(began[line["effect"]], first_there)
                pairs[line["task"], line["branch"]].append((done_at, undone_at, label))
    for undone_here in pairs.values():
        undone_here.sort()
        for index, (_, earlier_undone, earlier) in enumerate(undone_here):
            for later_done, later_undone, later in undone_here[index + 1 :]:
                if later_done < earlier_undone < later_undone:
                    yield f"{earlier} was undone before {later}, which was done after it"


def _undone_inside_out(evidence: Evidence) -> Iterator[str]:
    """What a step did inside is undone before the step itself."""
    undone: list[tuple[int, int, Line]] = []
    for lines in _acts(evidence).values():
        for (done_at, line), (undone_at, undo) in itertools.pairwise(lines):
            if (line["what"], undo["what"]) == ("act", "undo") and undo["how"] != "by hand":
                undone.append((done_at, undone_at, line))
    for outer_done, outer_undone, outer in undone:
        path = f"{outer['branch']}/{outer['node']}/"
        for done, undone_at, line in undone:
            is_inside = (
                line["task"] == outer["task"]
                and f"{line['branch']}/".startswith(path)
                and _turn(line["label"]).startswith(_turn(outer["label"]))
            )
            if is_inside and done < outer_done and outer_undone < undone_at:
                yield f"{outer['label']} was undone before {line['label']}, which it did inside"


def _turn(label: str) -> str:
    """Return the turns of the loops that a label is in: ``[0][1]`` of ``task/n4[0][1]@2``."""
    return "".join(re.findall(r"\[\d+\]", label.rpartition("/")[2]))


def _same_values(evidence: Evidence) -> Iterator[str]:
    """A node that returned in a round returns the same in each replay of that round, unless it was undone."""
    seen: dict[tuple[str, int, str], str] = {}
    for line in evidence.lines:
        if line["what"] == "undo":
            # Everything around it may hold the value of what was undone.
            seen = {place: value for place, value in seen.items() if place[0] != line["task"]}
        if line["what"] != "value":
            continue
        place = (line["task"], line["round"], line["label"])
        if seen.setdefault(place, line["sum"]) != line["sum"]:
            yield f"{line['label']} returned two values in round {line['round']}"


def _not_again(evidence: Evidence) -> Iterator[str]:
    """A step that returned in a round does not run again in it, unless it was undone.

    The function of one that has something to undo inside it is entered once more when the undo is looked for.
    """
    nodes = list(evidence.case.body.walk())
    entered = {node.id for node in nodes if node.op == "nested" and any(part["undo"] for part in node.walk())}
    over: set[tuple[str, int, str]] = set()
    for line in evidence.lines:
        if line["what"] == "undo":
            over = {place for place in over if place[0] != line["task"]}
        if line["what"] not in {"value", "ran", "act"} or line["label"].endswith("@"):
            continue
        if line["label"].rpartition("/")[2].partition("[")[0] in entered:
            continue
        place = (line["task"], line["round"], line["label"])
        if line["what"] == "value":
            over.add(place)
        elif place in over:
            yield f"{line['label']} ran again after it had returned in round {line['round']}"


def _forks(evidence: Evidence) -> Iterator[str]:
    """What a fork shares it does not do again: effects in no round, other steps not in the round they share."""
    for fork in evidence.forks:
        for line in evidence.lines:
            if line.get("task") != fork.task_id:
                continue
            if line["what"] == "act" and line.get("once") and line["key"] in fork.known and "@" not in line["label"]:
                yield f"fork {line['label']} did again what its origin had done"
            if line["what"] == "ran" and line["round"] == fork.round and line["key"] in fork.shared:
                yield f"fork {line['label']} ran again what its origin had run"


def _charged(evidence: Evidence) -> Iterator[str]:
    """What the root and its children want counted is counted once in each round, however often it is tried."""
    lines = [line for line in evidence.lines if line["label"].startswith(evidence.root)]
    if evidence.charged is not None:
        yield from _counted(evidence, "charge", lines, evidence.charged)


def _patched(evidence: Evidence) -> Iterator[str]:
    """Each patch of a task's state makes one version of it. Agents, ours and others, patch theirs by themselves."""
    forks = {fork.task_id for fork in evidence.forks}  # these begin with what their origin made
    for task in evidence.tasks.values():
        if task.id not in forks and not task.name.startswith("agent-") and task.name != HANDOVER:
            lines = [line for line in evidence.lines if line.get("owner") == task.id]
            yield from _counted(evidence, "patch", lines, task.version)


def _counted(evidence: Evidence, what: str, lines: list[Line], found: int) -> Iterator[str]:
    begun, done = ({line["label"] for line in lines if line["what"] == f"{what} {how}"} for how in ("begun", "done"))
    most = len(begun) if not any(line["what"] == "undo" for line in evidence.lines) else None
    if found < len(done) or (most is not None and found > most):  # what was undone is done again in the same round
        yield f"{found} of {what}: {len(done)} were made, and {len(begun)} begun"


def _seen_by_others(evidence: Evidence) -> Iterator[str]:
    """What the people and the agents around the program saw go wrong."""
    for line in evidence.lines:
        if line["what"] == "wrong":
            yield f"{line['label']}: {line['note']}"


def _messages(evidence: Evidence) -> Iterator[str]:
    """An agent reads each message once and in their order, and does not end before it has read what it was sent."""
    sent: dict[str, list[str]] = defaultdict(list)
    for line in evidence.lines:
        if line["what"] == "sent":
            sent[line["label"]].append(line["text"])
    read: dict[str, list[str]] = {}
    acted = {line["label"] for line in evidence.lines if line["what"] == "act"}
    for line in evidence.lines:
        if line["what"] != "reads":
            continue
        read[line["label"]] = line["texts"]
        if len(line["texts"]) != len(set(line["texts"])):
            yield f"{line['label']} read a message twice: {line['texts']}"
        for label in set(line["paid"]) - acted:
            yield f"{line['label']} saw that {label} was paid, which it never was"
    for task_id, texts in sent.items():
        task = evidence.tasks[task_id]
        heard = [text for text in read.get(label_of(task), []) if text in texts]
        if heard != texts[: len(heard)]:
            yield f"{task.name} read its messages in another order: {heard} of {texts}"
        if task.state is TaskState.COMPLETED and len(heard) < len(texts):
            yield f"{task.name} completed, and had not read {texts[len(heard) :]}"


def _machines(evidence: Evidence) -> Iterator[str]:
    """A machine that has moved on does not enter an earlier state again in that round, unless something was undone."""
    furthest: dict[tuple[str, int, str], int] = {}
    undone = {line["task"] for line in evidence.lines if line["what"] == "undo"}
    for line in evidence.lines:
        if line["what"] != "enters" or line["task"] in undone:
            continue
        place = (line["task"], line["round"], line["label"])
        if line["state"] < furthest.get(place, 0):
            yield f"{line['label']} entered state {line['state']} again, after state {furthest[place]}"
        furthest[place] = max(line["state"], furthest.get(place, 0))


def _pruned(evidence: Evidence) -> Iterator[str]:
    """Children go only with their parent, and whatever has ended goes in the end."""
    for task in evidence.tasks.values():
        if task.parent_id is not None and (task.id in evidence.kept) != (task.parent_id in evidence.kept):
            yield f"of {task.name} and its parent one was pruned without the other"
    for task in evidence.left:
        yield f"{task.name} has ended, and was not pruned: {task.state}"


def _limited(evidence: Evidence) -> Iterator[str]:
    """Of the steps under a limit no more are under way than it allows. A frozen life may have gone on too long."""
    is_exact = all(fault.kind != "freeze" for fault in evidence.case.faults) and not evidence.case.replaced
    lines = [line for line in evidence.lines if line["what"] in {"in", "out"}]
    if not is_exact or len({line["pid"] for line in lines}) > 1:  # a process that was killed does not note its end
        return
    under_way = 0
    for line in lines:
        under_way += 1 if line["what"] == "in" else -1
        if under_way > evidence.case.limited_steps:
            yield f"{line['label']} began as one of {under_way} under a limit of {evidence.case.limited_steps}"


RULES = (
    _limited,
    _no_odd_ends,
    _feed,
    _queues_are_empty,
    _labels,
    _once,
    _returned,
    _rows,
    _submitted_with_rows,
    _undone,
    _undone_in_reverse,
    _undone_inside_out,
    _same_values,
    _not_again,
    _forks,
    _charged,
    _patched,
    _seen_by_others,
    _messages,
    _machines,
    _pruned,
)

"""The reference of what ``from holdfast import ...`` offers, from docstrings and signatures."""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import re
import textwrap
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import holdfast
from holdfast.model import errors
from scripts.reference_pages.markdown import GENERATED, anchor, as_markdown, fenced

PENDING = re.compile(r"Pending\[(.*)\]", re.DOTALL)

WIDTH = 100
"""A longer signature gets one line per argument."""

GROUPS = {
    "Applications": "Holdfast TaskDefinition IfExists Handle Worker SyncHoldfast SyncHandle SyncWorker",
    "Tasks and their context": (
        "Context SyncContext Child Retry RetryAt GiveUp Deadline Machine Goto Reached "
        "Visit Task NewTask Submitted "
        "TaskState Transition Step StepState Failure Try Event Origin"
    ),
    "Effects": (
        "Intent Compensation Happened Absent Unknown Doubt Decision Effect EffectClass EffectState Evidence "
        "Transaction SyncTransaction current_effect_id"
    ),
    "Agents": "Agent SubAgent Tool ToolContext tool Human Judge Message ToolCall ToolSpec",
    "Models": "Model OpenAIModel ScriptedModel Request Reply Usage Price",
    "State": (
        "AgentState StatePatch AppliedPatch KnownFact ArtifactRef Constraints HumanInTheLoop RiskLevel apply diff "
        "Change ChangeKind ContextSlice filter_relevant_state"
    ),
    "Checkpoints": "Checkpoints CheckpointStrategy CheckpointManager Checkpoint Resumed",
    "Budgets": "Budget Ledger Meter",
    "Flow": "Pause QueueSettings Limit LimitUse Schedule Overlap CatchUp",
    "The feed": "Feed FeedEvent FeedRetention",
    "People": "Ask Approval ApprovalState Decided",
    "Memory and artifacts": "Memory MemoryFact FactConflict effective_confidence Artifacts Artifact",
    "Stores": "open_store make_store TaskStore StateStore Capabilities TaskFilter Page Summary encode decode Clock "
    "ManualClock",
}
"""The part of the page for each public name. Errors have their own part."""

GUIDES = {
    "Applications": {"Tasks": "tasks"},
    "Tasks and their context": {"Tasks": "tasks", "Machines": "machines"},
    "Effects": {"Effects": "effects"},
    "Agents": {"Agents": "agents"},
    "Models": {"Models": "models"},
    "State": {"The state of an agent": "agent-state"},
    "Checkpoints": {"Checkpoints": "agent-state"},
    "Budgets": {"Budgets": "budgets"},
    "Flow": {"Operations": "operations", "Schedules": "schedules"},
    "The feed": {"The feed": "feed"},
    "People": {"Approvals and questions": "approvals"},
    "Memory and artifacts": {"Memory": "memory", "Artifacts": "artifacts"},
    "Stores": {"Stores and scaling out": "scaling-out", "The store contract": "store-contract"},
    "Errors": {"Operations": "operations"},
}
"""The pages that explain what a topic is for."""

READ_NEXT = [
    "## Read next",
    "",
    "- [Concepts](concepts.md): how the parts fit together",
    "- [Glossary](glossary.md): what the words mean",
    "- [Commands](reference-cli.md): the other reference",
]

HANDED_OUT = {
    "Artifacts": "`hold.artifacts`, `ctx.artifacts`",
    "Child": "`await ctx.submit(...)`",
    "Context": "the first argument of a task function",
    "Feed": "`hold.feed(...)`",
    "Handle": "`await hold.submit(...)`, `hold.handle(task_id)`",
    "Memory": "`hold.memory`",
    "SyncContext": "the first argument of a blocking task function",
    "SyncHandle": "`h.submit(...)`",
    "SyncHoldfast": "`with hold.sync as h`",
    "SyncTransaction": "the first argument of a blocking function in a transaction",
    "SyncWorker": "`with h.worker()`",
    "TaskDefinition": "`@hold.task`, `hold.register(...)`",
    "Transaction": "the first argument of a function in a transaction",
    "Worker": "`async with hold.worker()`",
}
"""Objects that users do not construct, and where they come from."""


def api_pages() -> dict[str, str]:
    """Return the pages of the API reference below docs/: an index, and a page for each group of names."""
    groups = grouped(holdfast.__all__)
    return {"reference-api.md": _index(groups)} | {
        f"reference/{anchor(title)}.md": _page(title, names) for title, names in groups.items()
    }


def _index(groups: dict[str, list[str]]) -> str:
    lines = [
        "# The API",
        "",
        GENERATED,
        "",
        "This page is for programmers who look up a name. It lists everything that `from holdfast import ...` offers.",
        "",
        "| topic | names |",
        "|---|---|",
    ]
    for title, names in groups.items():
        page = f"reference/{anchor(title)}.md"
        lines.append(f"| [{title}]({page}) | {', '.join(_links(names, page))} |")
    return "\n".join([*lines, "", *READ_NEXT]) + "\n"


def _page(title: str, names: list[str]) -> str:
    described = f"This page is for programmers who look up a name: {', '.join(_links(names))}."
    lines = [f"# {title}", "", GENERATED, "", described]
    if title == "Errors":
        lines += ["", *fenced(inspect.cleandoc(_tree(errors.__doc__ or "")).splitlines())]
    for name in names:
        lines += ["", *_described(name, getattr(holdfast, name))]
    guides = [f"- [{name}](../{page}.md): the guide" for name, page in GUIDES[title].items()]
    lines += ["", "## Read next", "", *guides, "- [The API](../reference-api.md): all topics"]
    return "\n".join(lines) + "\n"


def _links(names: list[str], page: str = "") -> Iterator[str]:
    """Return links to names on a page."""
    for name in names:
        yield f"[{name}]({page}#{anchor(_heading(name))})"


def _heading(name: str) -> str:
    """Return the heading of a name. Anchors are in lower case, so ``tool`` must differ from ``Tool``."""
    has_twin = any(other != name and other.lower() == name for other in holdfast.__all__)
    return f"{name} (function)" if has_twin else name


def grouped(public: Sequence[str]) -> dict[str, list[str]]:
    """Return the names under their titles. A name without a place is an error: it would be missing in the reference."""
    names = [name for name in public if not name.startswith("_")]
    raised = [name for name in names if _is_error(getattr(holdfast, name))]
    groups = {title: text.split() for title, text in GROUPS.items()}
    placed = [name for group in groups.values() for name in group]
    if missing := sorted(set(names) - set(raised) - set(placed)):
        raise SystemExit(f"{', '.join(missing)}: give each a place in GROUPS of scripts/reference.py")
    if left := sorted(name for name in placed if name not in names or placed.count(name) > 1):
        raise SystemExit(f"{', '.join(left)}: no public names, or named twice, in GROUPS of scripts/reference.py")
    return groups | {"Errors": raised}


def _is_error(thing: object) -> bool:
    return isinstance(thing, type) and issubclass(thing, BaseException)


def _described(name: str, thing: Any) -> Iterator[str]:  # noqa: ANN401 - any public object
    yield f"## {_heading(name)}"
    yield ""
    if not isinstance(thing, type):
        yield from fenced(_signature(name, thing))
        yield from ("", as_markdown(inspect.getdoc(thing)))
        return
    if name in HANDED_OUT:
        yield from (f"Comes from: {HANDED_OUT[name]}.", "")
    elif (constructor := _constructor(thing)) is not None:
        yield from (*fenced(_signature(name, constructor, bound=True)), "")
    yield as_markdown(thing.__doc__)
    if fields := list(_fields(thing)):
        yield from ("", *fields)
    for method, function in _methods(thing):
        yield from ("", f"### {name}.{method}", "")
        yield from fenced(_signature(f"{name}.{method}", function, bound=True))
        yield from ("", as_markdown(inspect.getdoc(function)))


def _constructor(thing: type) -> Any:  # noqa: ANN401
    """Return the ``__init__`` that we wrote or that a dataclass made; None if users do not call it."""
    if issubclass(thing, enum.Enum):
        return None
    for parent in _ours(thing):
        if "__init__" in vars(parent):
            return None if getattr(parent, "_is_protocol", False) else vars(parent)["__init__"]
    return None


def _ours(thing: type) -> list[type]:
    return [parent for parent in thing.__mro__ if parent.__module__.partition(".")[0] == "holdfast"]


def _fields(thing: type) -> Iterator[str]:
    """Return a line for each member, each property, and each field with more than its signature."""
    described = {name: text for parent in reversed(_ours(thing)) for name, text in _field_docstrings(parent).items()}
    if issubclass(thing, enum.Enum):
        for member in thing:
            yield _item(f"{member.name} = {member.value!r}", described.get(member.name))
    elif dataclasses.is_dataclass(thing):
        for field in dataclasses.fields(thing):
            if not field.name.startswith("_") and (field.name in described or not field.init):
                yield _item(f"{field.name}: {_annotation(field.type)}", described.get(field.name))
    for name, value in _members(thing):
        if isinstance(value, property):
            returned = getattr(value.fget, "__annotations__", {}).get("return", "Any")
            yield _item(f"{name}: {_annotation(returned)}", inspect.getdoc(value))


def _item(code: str, described: str | None) -> str:
    return f"- `{code}`" + (f": {as_markdown(described)}".replace("\n", " ") if described else "")


def _field_docstrings(thing: type) -> dict[str, str]:
    """Return the docstrings below the fields of a class; Python itself does not keep them."""
    try:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(thing))).body
    except (OSError, TypeError):  # a class without source, made at run time
        return {}
    described = {}
    for field, below in zip(tree.body, tree.body[1:], strict=False) if isinstance(tree, ast.ClassDef) else ():
        target = field.targets[0] if isinstance(field, ast.Assign) else getattr(field, "target", None)
        if isinstance(target, ast.Name) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            described[target.id] = inspect.cleandoc(str(below.value.value))
    return described


def _methods(thing: type) -> Iterator[tuple[str, Any]]:
    for name, value in _members(thing):
        function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if inspect.isfunction(function) and function.__doc__ is not None:
            yield name, function


def _members(thing: type) -> Iterator[tuple[str, Any]]:
    """Return the public members of a class, its own first, each once."""
    seen: set[str] = set()
    for parent in _ours(thing):
        for name, value in vars(parent).items():
            if not name.startswith("_") and name not in seen:
                seen.add(name)
                yield name, value


def _signature(name: str, function: Any, *, bound: bool = False) -> list[str]:  # noqa: ANN401
    """Return ``name(arguments) -> result``, with one line per argument if it would be long."""
    signature = inspect.signature(function)
    # A parameter that is only accepted to raise a helpful error is not part of the signature.
    given = [one for one in signature.parameters.values() if one.name != "unknown"]
    if bound and given and given[0].name in {"self", "cls"}:
        given = given[1:]
    arguments = list(_arguments(given))
    returned = signature.return_annotation
    pending = PENDING.fullmatch(str(returned))  # the verbs of a store return something to be awaited, as ``async`` does
    if pending is not None:
        returned = pending[1]
    asynchronous = "async " if pending or inspect.iscoroutinefunction(function) else ""
    if returned in {inspect.Signature.empty, "None", None}:
        returned = ""
    arrow = f" -> {_annotation(returned)}" if returned else ""
    short = f"{asynchronous}{name}({', '.join(arguments)}){arrow}"
    if len(short) <= WIDTH:
        return [short]
    return [f"{asynchronous}{name}(", *(f"    {argument}," for argument in arguments), f"){arrow}"]


def _arguments(given: Sequence[inspect.Parameter]) -> Iterator[str]:
    kinds = inspect.Parameter
    starred = False
    for position, parameter in enumerate(given):
        if parameter.kind is kinds.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        starred = starred or parameter.kind is kinds.VAR_POSITIONAL
        text = str(parameter.replace(annotation=kinds.empty, default=kinds.empty))  # with its stars
        if parameter.annotation is not kinds.empty:
            text += f": {_annotation(parameter.annotation)}"
        if parameter.default is not kinds.empty:
            text += f" = {_default(parameter.default)}"
        yield text
        following = given[position + 1].kind if position + 1 < len(given) else None
        if parameter.kind is kinds.POSITIONAL_ONLY and following is not kinds.POSITIONAL_ONLY:
            yield "/"


def _annotation(found: object) -> str:
    text = found if isinstance(found, str) else inspect.formatannotation(found)
    return re.sub(r"\b(?:typing|collections\.abc|datetime)\.", "", text)


def _default(value: object) -> str:
    """Return a default as people would write it; ``...`` for a marker of a missing argument."""
    if isinstance(value, enum.Enum):
        return repr(value.value) if isinstance(value, str) else f"{type(value).__name__}.{value.name}"
    if isinstance(value, timedelta):
        return f"timedelta(seconds={value.total_seconds():g})"
    if isinstance(value, type) or inspect.isfunction(value):
        return value.__name__
    if isinstance(value, tuple) and value:
        return f"({', '.join(map(_default, value))}{',' if len(value) == 1 else ''})"
    text = re.sub(r"\b(?:typing|datetime)\.", "", repr(value))
    return "..." if " at 0x" in text or text.startswith("<") else text


def _tree(docstring: str) -> str:
    """Return the picture in a module's docstring: its indented lines."""
    return "\n".join(line for line in docstring.splitlines() if line.startswith("    "))

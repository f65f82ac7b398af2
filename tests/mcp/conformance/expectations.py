"""What is expected of each scenario, and under which of our names the suites find what they ask for.

Everything a suite looks at has to be a success, unless it is named here with the reason why it cannot be one. What is
named and succeeds after all is an error as well: the table says what is true today.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from tests.mcp.conformance.proxy import Names, Params
from tests.mcp.conformance.stock import FACTS_ABOUT, Stock


@dataclass(frozen=True, slots=True)
class Passes:
    """The scenario applies to us."""

    reaching: str | None = None
    """The suite's name for the thing that has to be reached under one of ours, and that has to answer."""
    refused: bool = False
    """What is reached is to answer with an error of the tool."""
    apart_from: Mapping[str, str] = field(default_factory=dict)
    """Checks that cannot succeed, and why."""


@dataclass(frozen=True, slots=True)
class DoesNotApply:
    """The scenario is about something that the server does not have. It is run all the same, and must do no harm."""

    reason: str


Expected: TypeAlias = Passes | DoesNotApply


def names(stock: Stock) -> Names:
    """Return what of ours takes the place of what the suites expect to find."""
    return {
        "test_simple_text": _always(name="list_tasks"),
        "test_streaming_elicitation": _always(name="list_tasks"),
        "test_logging_tool": _always(name="list_tasks"),
        "greet": _always(name="list_tasks", arguments={}),
        "test_error_handling": _always(name="get_task", arguments={"task_id": "no-such-task"}),
        "slow_compute": _submitted,
        "failing_job": _submitted,
        "confirm_delete": _submitted,
        "test://static-text": _always(uri="task://queue"),
        "test://static-binary": _always(uri=f"artifact://{stock.picture}"),
        "test://template/123/data": _always(uri=f"fact://{FACTS_ABOUT}"),
        "test://watched-resource": _always(uri="task://queue"),
        "test_simple_prompt": _always(name="resume_task", arguments={"task_id": stock.task}),
        "test_prompt_with_arguments": _prompted(stock),
    }


def _always(**ours: Any) -> Callable[[Params], Params]:  # noqa: ANN401
    return lambda _: ours


def _submitted(theirs: Params) -> Params:
    """What the suite wants a tool to do for a while is done by a task of the application."""
    given = list(theirs["arguments"].values())
    arguments = {"name": theirs["name"], "arguments": given, "follow": True}
    return {"name": "submit_task", "arguments": arguments}


def _prompted(stock: Stock) -> Callable[[Params], Params]:
    """The suite asks for this prompt with two arguments that have to be seen in it, and has an argument completed."""

    def ours(theirs: Params) -> Params:
        if "ref" in theirs:
            ref = {"type": "ref/prompt", "name": "resume_task"}
            return {"ref": ref, "argument": {"name": "task_id", "value": stock.task[:4]}}
        return {"name": "hand_over", "arguments": {"task_id": stock.task, "to": "".join(theirs["arguments"].values())}}

    return ours


_ELICITS: Final = DoesNotApply("asks a person through the client; here people are asked by ask_human, and answer later")
_SAMPLES: Final = DoesNotApply("asks the client's model; the server has no use for one")
_NO_SUCH_CONTENT: Final = DoesNotApply("asks for a tool whose result is not text; here such things are artifacts")
_NO_SUCH_PROMPT: Final = DoesNotApply("asks for a prompt with parts that are not text; ours are text")
_SKILLS: Final = DoesNotApply("an extension that the server does not offer")
_NEVER_CHANGES: Final = "the list never changes, and has no tool that would change it"

EXPECTED: Final[Mapping[str, Expected]] = {
    # The life of a connection
    "server-initialize": Passes(),
    "server-session-lifecycle": Passes(),
    "server-stateless": Passes(
        reaching="test_streaming_elicitation",
        apart_from={
            "sep-2575-server-rejects-undeclared-capability": "needs a tool that samples",
            "sep-2575-missing-capability-http-400": "needs a tool that samples",
            "sep-2575-server-sends-prompts-list-changed-on-subscription": _NEVER_CHANGES,
            "sep-2575-server-sends-tools-list-changed-on-subscription": _NEVER_CHANGES,
        },
    ),
    "ping": Passes(),
    "logging-set-level": DoesNotApply("the server logs to its operator, and not to its clients"),
    "dns-rebinding-protection": Passes(),
    "http-header-validation": Passes(),
    "http-custom-header-server-validation": DoesNotApply("no tool of the server asks for a header"),
    "server-sse-multiple-streams": Passes(),
    "server-sse-polling": DoesNotApply("needs a tool that breaks its own connection"),
    "caching": Passes(),
    # Tools
    "tools-list": Passes(),
    "tools-call-simple-text": Passes(reaching="test_simple_text"),
    "tools-call-error": Passes(reaching="test_error_handling", refused=True),
    "tools-call-image": _NO_SUCH_CONTENT,
    "tools-call-audio": _NO_SUCH_CONTENT,
    "tools-call-embedded-resource": _NO_SUCH_CONTENT,
    "tools-call-mixed-content": _NO_SUCH_CONTENT,
    "tools-call-with-logging": DoesNotApply("the server logs to its operator, and not to its clients"),
    "tools-call-with-progress": DoesNotApply("needs a tool that makes progress of itself"),
    "tools-call-sampling": _SAMPLES,
    "tools-call-elicitation": _ELICITS,
    "elicitation-sep1034-defaults": _ELICITS,
    "elicitation-sep1330-enums": _ELICITS,
    "json-schema-2020-12": DoesNotApply("needs a tool with keywords of JSON Schema that no tool of ours has"),
    # Resources
    "resources-list": Passes(),
    "resources-read-text": Passes(reaching="test://static-text"),
    "resources-read-binary": Passes(reaching="test://static-binary"),
    "resources-templates-read": Passes(reaching="test://template/123/data"),
    "resources-subscribe": Passes(reaching="test://watched-resource"),
    "resources-unsubscribe": Passes(reaching="test://watched-resource"),
    "sep-2164-resource-not-found": Passes(),
    # Prompts
    "prompts-list": Passes(),
    "prompts-get-simple": Passes(reaching="test_simple_prompt"),
    "prompts-get-with-args": Passes(reaching="test_prompt_with_arguments"),
    "prompts-get-embedded-resource": _NO_SUCH_PROMPT,
    "prompts-get-with-image": _NO_SUCH_PROMPT,
    "completion-complete": Passes(reaching="test_prompt_with_arguments"),
    # Asking back in the middle of a request
    "input-required-result-unsupported-methods": Passes(),
    "input-required-result-basic-elicitation": _ELICITS,
    "input-required-result-basic-sampling": _SAMPLES,
    "input-required-result-basic-list-roots": DoesNotApply(
        "asks for the client's folders; the server has no use for them"
    ),
    "input-required-result-request-state": _ELICITS,
    "input-required-result-multiple-input-requests": _ELICITS,
    "input-required-result-multi-round": _ELICITS,
    "input-required-result-missing-input-response": _ELICITS,
    "input-required-result-non-tool-request": _ELICITS,
    "input-required-result-result-type": _ELICITS,
    "input-required-result-tampered-state": _ELICITS,
    "input-required-result-capability-check": _ELICITS,
    "input-required-result-ignore-extra-params": _ELICITS,
    "input-required-result-validate-input": _ELICITS,
    # Extensions
    "sep-2640-skills-directory": _SKILLS,
    "sep-2640-skills-enumeration": _SKILLS,
    "sep-2640-skills-manifest": _SKILLS,
    "tasks-lifecycle": Passes(
        reaching="slow_compute",
        apart_from={"sep-2663-tasks-get-status-failed": "a task of ours that fails is a call that came back"},
    ),
    "tasks-capability-negotiation": Passes(reaching="slow_compute"),
    "tasks-wire-fields": Passes(reaching="slow_compute"),
    "tasks-request-state-removal": Passes(reaching="slow_compute"),
    "tasks-request-headers": Passes(
        reaching="slow_compute",
        apart_from={"tasks-headers-tolerate-mcp-method-on-tools-call": "wants to be greeted, word for word"},
    ),
    "tasks-dispatch-and-envelope": Passes(reaching="slow_compute"),
    "tasks-mrtr-input": _ELICITS,
    "tasks-mrtr-composition": _ELICITS,
    "tasks-required-task-error": DoesNotApply("no tool of the server insists on the extension"),
    "tasks-status-notifications": DoesNotApply("the suite has nothing to check yet"),
}

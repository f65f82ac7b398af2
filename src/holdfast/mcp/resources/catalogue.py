"""Which resources there are: three that always are, and the state of every task that has not ended."""

from __future__ import annotations

from mcp_types import ListResourcesResult, ListResourceTemplatesResult, Resource, ResourceTemplate

from holdfast.mcp import addresses
from holdfast.mcp.access import CallerAccess
from holdfast.mcp.forms import goal_of, uri_of
from holdfast.mcp.resources.content import JSON, PAGE
from holdfast.model.queries import TaskFilter
from holdfast.model.task import Task
from holdfast.model.transitions import OPEN

_STANDING = (
    Resource(
        uri=addresses.QUEUE,
        name="queue",
        title="What waits",
        description="Pending tasks in the order in which they will be claimed, with counts for each queue. "
        "Subscribe to be notified when work arrives. No tasks: nothing waits.",
        mime_type=JSON,
    ),
    Resource(
        uri=addresses.CURRENT,
        name="current",
        title="What is being worked on",
        description="'yours': the tasks you hold. 'running': those others work on. Both empty: nothing runs.",
        mime_type=JSON,
    ),
    Resource(
        uri=addresses.SCHEDULES,
        name="schedules",
        title="What is submitted again and again",
        description="Schedules with their next times and last task. An empty 'next': it submits nothing now. "
        "No schedules: nothing is submitted by itself.",
        mime_type=JSON,
    ),
)

_TEMPLATES = (
    ResourceTemplate(
        uri_template=addresses.STATE_TEMPLATE,
        name="state",
        title="State of a task",
        description="Where a task stands, its plan, facts, questions and artifacts, with the version that patch_state "
        "asks for. agent_state null: no agent keeps a state for it.",
        mime_type=JSON,
    ),
    ResourceTemplate(
        uri_template=addresses.STEPS_TEMPLATE,
        name="steps",
        title="Journal of a task",
        description="What was done, step by step, oldest first; 'next' is the URI of the next page, null on the last.",
        mime_type=JSON,
    ),
    ResourceTemplate(
        uri_template=addresses.CHECKPOINT_TEMPLATE,
        name="checkpoint",
        title="Checkpoint of a task",
        description="The state as it was saved under a number.",
        mime_type=JSON,
    ),
    ResourceTemplate(
        uri_template=addresses.QUEUE_TEMPLATE,
        name="queue_page",
        title="What waits in a queue",
        description="One queue, or the next page of what waits.",
        mime_type=JSON,
    ),
    ResourceTemplate(
        uri_template=addresses.ARTIFACT_TEMPLATE,
        name="artifact",
        title="Artifact",
        description="A stored output. Large ones come as an excerpt; offset and length (bytes) read a part.",
    ),
    ResourceTemplate(
        uri_template=addresses.FACT_TEMPLATE,
        name="facts",
        title="What is remembered",
        description="The facts known about an entity, beyond any task.",
        mime_type=JSON,
    ),
)


async def list_resources(access: CallerAccess, cursor: str | None) -> ListResourcesResult:
    """Return one page."""
    page = await access.service.tasks(TaskFilter(states=OPEN), limit=PAGE, after=cursor)
    standing = () if cursor else _STANDING
    return ListResourcesResult(resources=[*standing, *map(_resource, page.items)], next_cursor=page.next)


def list_templates() -> ListResourceTemplatesResult:
    """Return all templates."""
    return ListResourceTemplatesResult(resource_templates=list(_TEMPLATES))


def _resource(task: Task) -> Resource:
    return Resource(
        uri=uri_of(task),
        name=task.id,
        title=goal_of(task),
        description=f"{task.name}, {task.state}, in queue {task.queue}",
        mime_type=JSON,
    )

"""Changing what is known about a task."""

from __future__ import annotations

import base64
from typing import Annotated, Any

from pydantic import Field

from holdfast.mcp.access import CallerAccess
from holdfast.mcp.addresses import artifact_uri
from holdfast.mcp.forms import state_form
from holdfast.mcp.toolset.inspection import TaskId
from holdfast.model.errors import InvalidValue

OptionalLease = Annotated[
    str | None,
    Field(description="Your lease, if you hold the task: then it is refused once the lease is over."),
]
MAX_CONTENT = 2 << 20
"""Characters of an artifact in one call; a request may have four million bytes."""


class SharedStateTools:
    """Writes to a task's state."""

    def __init__(self, access: CallerAccess) -> None:
        """``access`` belongs to the request."""
        self._access = access

    async def patch_state(
        self,
        *,
        task_id: TaskId,
        version: Annotated[int, Field(ge=0, description="The version you have read; get_task has it.")],
        patch: Annotated[
            dict[str, Any],
            Field(
                description="Any of: append_facts [{key, value, source?, step?, confidence?}], replace_plan [text], "
                "add_questions, resolve_questions, set_flags, clear_flags, complete_steps [text], current_step text."
            ),
        ],
        reason: Annotated[str, Field(max_length=500, description="Why, for the history.")] = "",
    ) -> dict[str, Any]:
        """Change a task's shared state, if it has not changed since you read it.

        Call it to replace the plan, close questions or set flags. If it has changed, nothing is written, and the
        error brings the newer state and its version: look at it, merge, and call again. To only add facts use
        append_facts, which needs no version.
        """
        whole = await self._access.service.task_id(task_id)
        shared = await self._access.agent.patch_state(whole, patch, version=version, reason=reason)
        return state_form(shared.task, shared.state)

    async def append_facts(
        self,
        *,
        task_id: TaskId,
        facts: Annotated[
            list[dict[str, Any]],
            Field(min_length=1, max_length=100, description='[{"key": "disk", "value": "92%", "source": "df -h"}]'),
        ],
        lease: OptionalLease = None,
    ) -> dict[str, Any]:
        """Add what you found out to a task's state. You do not need its lease.

        Call it to share findings. Nothing is replaced: the freshest fact about a key is the last one. Returns
        the new version. A fact that is known already changes nothing.
        """
        whole = await self._access.service.task_id(task_id)
        shared = await self._access.agent.append_facts(whole, facts, lease=lease)
        return {"task_id": whole, "version": shared.task.version, "facts": len(shared.state.known_facts)}

    async def add_artifact(
        self,
        *,
        task_id: TaskId,
        name: Annotated[str, Field(min_length=1, max_length=200, description="A file name, for people.")],
        summary: Annotated[str, Field(max_length=1000, description="What it is, in a line: models see this first.")],
        content: Annotated[str, Field(max_length=MAX_CONTENT, description="The text, or base64 with encoding.")],
        encoding: Annotated[
            str, Field(pattern="^(text|base64)$", description="'text', or 'base64' for anything else.")
        ] = "text",
        media_type: Annotated[str | None, Field(max_length=100, description="By default the name says it.")] = None,
        lease: OptionalLease = None,
    ) -> dict[str, Any]:
        """Keep a large output (a log, a report, a file) with a task, outside of any model's context.

        Call it instead of putting long text into facts. Returns the URI to read it under. The same bytes are
        stored once.
        """
        whole = await self._access.service.task_id(task_id)
        mention = await self._access.agent.add_artifact(
            whole,
            _content(content, encoding),
            name=name,
            media_type=media_type,
            summary=summary,
            lease=lease,
        )
        return {"uri": artifact_uri(mention.artifact_id), "artifact_id": mention.artifact_id, "bytes": mention.bytes}


def _content(content: str, encoding: str) -> bytes:
    if encoding == "text":
        return content.encode()
    try:
        return base64.b64decode(content, validate=True)
    except ValueError as error:  # binascii.Error, or characters that are not even ASCII
        raise InvalidValue(
            f"the content is not valid base64: {error}; encode the bytes, or pass encoding='text'"
        ) from error

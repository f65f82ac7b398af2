"""Tokens over HTTP: what each of them may do, and that no caller gets into another caller's session."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest
from mcp.shared.exceptions import MCPError

from holdfast.mcp.toolset.toolbox import TOOLS
from holdfast.service.access import AccessScope
from tests.proof.engine.conditions import PATIENCE
from tests.proof.mcp.reaching import TOKEN, client_of, serving

SECRETS = {scope: f"a-long-secret-for-{scope}" for scope in AccessScope}


async def test_a_token_does_what_its_scopes_allow(tmp_path: Path) -> None:
    tokens = {f"HOLDFAST_API_TOKEN_{scope.upper()}": f"{scope}:{secret}" for scope, secret in SECRETS.items()}
    async with serving(f"sqlite:///{tmp_path}/agents.db", tmp_path, **tokens) as reached:
        for scope, secret in SECRETS.items():
            async with client_of(reached, "auto", token=secret) as client:
                offered = {tool.name for tool in (await client.list_tools()).tools}
                assert offered == {name for name, exposed in TOOLS.items() if exposed.scope is scope}
                for name, exposed in TOOLS.items():
                    if exposed.scope is not scope:
                        refused = await client.call_tool(name, {})
                        assert refused.is_error
                        assert refused.structured_content["kind"] == "NotAllowed"
                if scope is not AccessScope.READ:
                    for look in (client.list_resources(), client.list_prompts(), client.read_resource("task://queue")):
                        with pytest.raises(MCPError, match="needs the scope 'read'"):
                            await look


async def test_a_session_is_its_openers_alone(tmp_path: Path) -> None:
    other = SECRETS[AccessScope.READ]
    async with (
        serving(f"sqlite:///{tmp_path}/agents.db", tmp_path, HOLDFAST_API_TOKEN_OTHER=f"read:{other}") as reached,
        httpx2.AsyncClient(timeout=PATIENCE) as http,
    ):
        assert reached.address is not None
        opening = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "tester", "version": "1"},
            },
        }
        own = {"Authorization": f"Bearer {TOKEN}", "Accept": "application/json, text/event-stream"}
        opened = await http.post(reached.address, json=opening, headers=own)
        session = {"mcp-session-id": opened.headers["mcp-session-id"]}
        stolen = await http.delete(reached.address, headers=own | session | {"Authorization": f"Bearer {other}"})
        assert stolen.status_code == 404
        ended = await http.delete(reached.address, headers=own | session)
        assert ended.status_code == 200

"""Holdfast and the Model Context Protocol: agent state as shared, standard resources.

server       the server, whichever way it is reached; stdio and HTTP
resources/   what can be read: states, steps, checkpoints, the queue, artifacts, facts
tools/       what can be called: submit, share state, take a task over and hand it back, remember
prompts      briefings for whoever goes on with a task
watching     subscriptions: who watches what, and when it changed
client/      the other way round: the tools of any MCP server, for an Agent
"""

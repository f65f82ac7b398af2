"""``holdfast serve``: what Holdfast offers over HTTP.

A request passes through these in this order: answers, shutdown, guard, application.

Modules:

address.py         Where to listen, and whether only this machine can reach it
answers.py         What every answer carries, refusals in words, and the access log
application.py     The application: every route in one place, and what lives as long as the server
guard.py           The guard: who may come in
health.py          /healthz and /readyz: for the programs that start, restart and route to the server
names.py           The names a server is known by
server_process.py  The server process: uvicorn on a socket of ours, until it is stopped
shutdown.py        The requests under way, and their end when the server stops
tokens.py          Tokens: who holds which, and what each of them allows
"""

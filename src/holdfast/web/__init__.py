"""``holdfast serve``: what Holdfast offers over HTTP.

application  the routes, and what lives as long as the server
answers      what every answer carries; refusals in words; the access log
guard        who may come in: Host, Origin, token
names        the names the server is known by
tokens       the tokens, and what each of them allows
health       /healthz and /readyz
ending       the requests under way, and their end when the server stops
address      where to listen, and whether only this machine can reach it
serving      the server process

A request passes through them in this order: answers, ending, guard, application.
"""

"""``holdfast serve``: what Holdfast offers over HTTP.

application  the routes, and what lives as long as the server
guard        who may come in: Host, Origin, token
tokens       the tokens, and what each of them allows
health       /healthz and /readyz
serving      the server process
"""

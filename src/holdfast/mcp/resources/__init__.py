"""Resources: what can be read, under which URI, and how large it may be.

Modules:

catalogue.py    Which resources there are: three that always are, and the state of every task that has not ended
completions.py  Completing ids in templates and prompts
content.py      Reading a resource
"""

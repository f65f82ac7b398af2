"""Resources: what can be read, under which URI, and how large it may be.

reading      what is behind a URI
listing      which resources there are, and the templates of those nobody could list
completing   ids for templates and prompts, from their first characters
"""

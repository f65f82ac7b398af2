"""The JSON store: one readable file a task, for one process.

Modules:

contents.py   The bytes of artifacts: each in a file of its own, which is read when it is asked for
documents.py  Between tables and documents: which rows make up which file, in a form people can read
files.py      Files that are whole or absent, and several of them changed as one
lock.py       The lock that keeps a second process out of a directory
store.py      JsonStore: the contract on a directory of readable files, for one process
"""

from holdfast.store.jsonfile.store import JsonStore

__all__ = ["JsonStore"]

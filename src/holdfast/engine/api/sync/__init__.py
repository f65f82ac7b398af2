"""hold.sync: the same for blocking code, on an event loop in a thread of its own.

Modules:

artifacts.py    hold.sync.artifacts: hold.artifacts for blocking code
bridge.py       From the thread of a blocking function to the loop and back: the call is made there while the thread
                waits
context.py      SyncContext: ctx for blocking functions
handle.py       SyncHandle: one task, from outside, for blocking code
holdfast.py     hold.sync: Holdfast for blocking code
loop_thread.py  LoopThread: an event loop in a thread of its own, for code that blocks
memory.py       hold.sync.memory: hold.memory for blocking code
store.py        hold.sync.store: the four methods of a TaskStore, for blocking code
"""

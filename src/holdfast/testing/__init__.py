"""What Holdfast tests itself with, for those who write a store of their own.

``holdfast.testing.contract`` is the suite every store passes; it needs pytest and pytest-asyncio.
``holdfast.testing.snapshot`` reads everything a store holds, to compare it before and after.
"""

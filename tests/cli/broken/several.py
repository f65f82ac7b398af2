"""Two Holdfast objects, and none of them has a task."""

from holdfast import Holdfast

one = Holdfast()
other = Holdfast()

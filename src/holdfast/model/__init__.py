"""Pure data and pure decisions: no I/O, and time only ever passed in."""

"""What is wrong with a store, and what to do about it. A diagnosis looks and never changes anything.

The checks are pure: evidence in, findings out.

Modules:

durability.py          Whether the store keeps what it acknowledges
evidence.py            Evidence: everything a check may judge by, as it was found at one moment
evidence_collector.py  Gathering evidence: the one module of a diagnosis that looks
finding.py             Finding: one result of a check
growth.py              Whether the store grows too large
reachability.py        Whether the store is there, and may be opened as it is
report.py              Every check, in the order in which people read them: first whether there is a store, last what is
                       around it
surroundings.py        Settings, the application and what is installed
workers.py             Whether the work gets done: there are workers for it, and no request waits too long for a person
"""

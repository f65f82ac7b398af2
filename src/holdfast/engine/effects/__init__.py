"""Steps that must not be done twice: armed before they are sent, cleared up when in doubt, undone in sagas.

Modules:

carried_intents.py  Intents that ride in the Commit of the step before: effect safety without a Commit of its own
compensation.py     Sagas: undoing what was done, in reverse, when a task fails, is cancelled, or runs out of time
doubt.py            Clearing up an effect in doubt: wait until it has settled, look at what is known, ask the tool, ask
                    a person
intents.py          The effects of one attempt: how each stands, which were armed here, and what code goes with them
late_evidence.py    Evidence: what a worker learned of a call after its lease was over, and what such reports say
once_step.py        Doing a step that must never be done blindly twice: arm, check, dispatch, record
recorded_call.py    How a ``once`` step stands before it does anything: what was recorded, under which effect id, and of
                    which call
"""

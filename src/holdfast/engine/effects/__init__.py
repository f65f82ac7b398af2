"""Steps that must not be done twice: armed before they are sent, cleared up when in doubt, undone in sagas.

Ready-made tools that declare such effects are in holdfast.effects; the states of an effect, in model/effect.py.

Modules:

armed_intent.py     The armed intent of a ``once`` call: the record that the call may be made from now on
carried_intents.py  Intents that are written in the Commit of the step before: effect safety without an extra Commit
compensation.py     Sagas: undoing what was done, in reverse, when a task fails, is cancelled, or runs out of time
doubt.py            Resolving an effect in doubt: wait until it has settled, read late reports, ask its reconcile, ask a
                    person
intents.py          The effects of one attempt: their records, which of them it armed, and the code that belongs to them
late_evidence.py    Evidence: late reports of what a worker learned about a call after its lease was over
once_step.py        Doing a step that must never be done blindly twice: arm, check, dispatch, record
recorded_call.py    The records of a ``once`` step before it does anything, and which call of an earlier round it takes
                    over
"""

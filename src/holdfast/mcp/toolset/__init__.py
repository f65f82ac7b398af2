"""Tools: what an agent outside may call.

toolbox      all of them: their schemas, who may call which, and how a call is answered
looking      get_task, list_tasks, wait_for_task
submitting   submit_task, cancel_task
sharing      patch_state, append_facts, add_artifact
handing      claim_task, report_progress, complete_step, ask_human, finish_task, release_task
remembering  remember, recall

Each is a method of a class that is made for one request. Its docstring is what the calling model reads: when to call
it, what comes back, what it means if that is empty. None of them decides an approval, answers for a person or changes a
setting.
"""

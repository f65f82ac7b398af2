"""Remove each guard of the effects protocol, one at a time, and check that the tests fail.

    make guards                      all of them (half an hour on two cores)
    python scripts/guards.py --list
    python scripts/guards.py settle-wait proof

Each guard names the line that keeps a promise, the code without it, and the tests that have to fail then. The change is
made in a copy of the project. If no test fails for a guard, the guard is printed and the script fails.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
LONGEST = 600.0
"""Seconds the tests of one guard may take. A hang is a failure too: without the guard something waits forever."""


@dataclass(frozen=True)
class Guard:
    """One promise, the code that keeps it, and the tests that fail without it."""

    name: str
    file: str
    there: str
    """The text of the guard; it must be in the file exactly once."""
    gone: str
    tests: tuple[str, ...]


_ENGINE = "src/holdfast/engine/"
_STORE = "src/holdfast/store/"
_EFFECTS = ("tests/engine/effects",)
_APPROVALS = ("tests/engine/steps/approval",)
_SAGAS = ("tests/engine/effects/compensation",)
_SCOPES = ("tests/engine/attempt/test_scope.py",)
_RACES = ("tests/engine/effects/races",)


def _contract(tests: str) -> tuple[str, ...]:
    """Return the tests of the stores' contract whose names contain these words."""
    return ("tests/store/contract", "-k", tests)


GUARDS = (
    # Before the call
    Guard(
        "intent-commit",
        _ENGINE + "effects/once_step.py",
        "            await attempt.outbox.commit_surely(*self._intent(armed))\n",
        "            attempt.intents.note(armed)\n",
        _EFFECTS,
    ),
    Guard("lease-check", _ENGINE + "effects/once_step.py", "if not attempt.lease.holds:", "if False:", _EFFECTS),
    Guard(
        "dispatch-by-check",
        _ENGINE + "effects/once_step.py",
        "if armed.dispatch_by is None or attempt.services.time.now() >= armed.dispatch_by:",
        "if False:",
        _EFFECTS,
    ),
    Guard(
        "stop-check",
        _ENGINE + "effects/once_step.py",
        "if attempt.over or attempt.stopping is not None or armed.fence != attempt.task.fence:",
        "if False:",
        _EFFECTS,
    ),
    Guard("deadline-check", _ENGINE + "effects/once_step.py", "if attempt.is_late:", "if False:", _EFFECTS),
    Guard(
        "arguments-hash",
        _ENGINE + "effects/recorded_call.py",
        '    if (step.digest or carried) in {fingerprint, digest_of(call.args), ""}:\n        return\n',
        "    return\n",
        _EFFECTS,
    ),
    Guard(
        "carried-intent-is-durable",
        _ENGINE + "effects/once_step.py",
        "is_durable = carried is not None and attempt.intents.effects.get(self._id) is carried",
        "is_durable = True",
        _EFFECTS,
    ),
    Guard(
        "carried-intent-is-this-call",
        _ENGINE + "effects/once_step.py",
        "carried.arguments_hash == wanted.arguments_hash",
        "True",
        _EFFECTS,
    ),
    # After the call
    Guard(
        "armed-by-another-is-doubt",
        "src/holdfast/model/effect.py",
        "NOT_MADE = frozenset({_S.INTENDED, _S.FAILED})",
        "NOT_MADE = frozenset({_S.INTENDED, _S.FAILED, _S.ARMED})",
        _EFFECTS,
    ),
    Guard(
        "only-proof-is-failure",
        _ENGINE + "effects/once_step.py",
        "if self._answered and proves_absence(raised, self.terms.absent_on, author=author):",
        "if True:",
        _EFFECTS,
    ),
    Guard(
        "our-own-timeout-proves-nothing",
        _ENGINE + "effects/once_step.py",
        "            except Exception:\n                self._answered = True\n                raise\n",
        "            finally:\n                self._answered = True\n",
        _RACES,
    ),
    Guard(
        "what-was-sent-is-known",
        _ENGINE + "attempt/outbox.py",
        "            return await asyncio.shield(sending)\n",
        "            return await sending\n",
        _RACES,
    ),
    Guard(
        "late-result-is-evidence",
        _ENGINE + "effects/once_step.py",
        "                await late_evidence.returned(self.attempt, armed, result.value, self.returns)\n"
        "            raise\n",
        "                pass\n            raise\n",
        _EFFECTS,
    ),
    Guard(
        "loose-ends",
        _ENGINE + "attempt/attempt.py",
        "return self._intents.unfinished(lambda key: inside is None or self.journal.digests.is_inside(key, inside))",
        "return ()",
        _EFFECTS,
    ),
    Guard(
        "dispatched-is-doubt",
        _ENGINE + "effects/intents.py",
        "if effect.effect_id in self._armed and self._take_back(effect):",
        "if effect.effect_id in self._armed:",
        _EFFECTS,
    ),
    # In doubt
    Guard(
        "settle-wait",
        _ENGINE + "effects/doubt.py",
        "        effect = await _until_settled(step, effect)\n",
        "        pass\n",
        _EFFECTS,
    ),
    Guard(
        "evidence-before-reconcile",
        _ENGINE + "effects/doubt.py",
        "    if reported is not None:\n        return reported\n",
        "",
        _EFFECTS,
    ),
    Guard(
        "evidence-before-another-call",
        _ENGINE + "effects/once_step.py",
        "if self.effect is not None and await late_evidence.has_returned_since(self.attempt, self.effect):",
        "if False:",
        _EFFECTS,
    ),
    Guard(
        "evidence-reopens",
        _ENGINE + "effects/late_evidence.py",
        "            await _contradict(services, task.id, effect)\n",
        "            pass\n",
        _EFFECTS,
    ),
    Guard(
        "thread-may-go-on",
        _ENGINE + "effects/doubt.py",
        "if isinstance(outcome, Absent) and thread.may_go_on:",
        "if False:",
        _EFFECTS,
    ),
    Guard(
        "thread-ended-before-the-tool-was-asked",
        _ENGINE + "effects/doubt.py",
        "    outcome = await _reconcile(step, effect)\n",
        "    outcome = await _reconcile(step, effect)\n"
        "    thread = await late_evidence.thread_of(step.attempt, effect)\n",
        _RACES,
    ),
    Guard(
        "decided-meanwhile",
        _ENGINE + "effects/doubt.py",
        "await attempt.outbox.commit_surely(WriteEffect(effect), OpenApproval(open_one))",
        "await attempt.outbox.commit_surely(OpenApproval(open_one))",
        _RACES,
    ),
    Guard(
        "unknown-needs-a-person",
        _ENGINE + "effects/doubt.py",
        "return await step.move(effect, replace(effect, state=_S.NEEDS_HUMAN, note=storable(note, 1000)))",
        "return await step.move(effect, replace(effect, state=_S.INTENDED))",
        _EFFECTS,
    ),
    Guard(
        "no-reconcile-is-unknown",
        _ENGINE + "effects/doubt.py",
        "return Unknown(NO_RECONCILE)",
        "return Absent()",
        _EFFECTS,
    ),
    Guard(
        "decisions-compare-and-set",
        _ENGINE + "manage/decide.py",
        "    if doubt.approval_id is not None:\n        answer: JsonValue",
        "    if False:\n        answer: JsonValue",
        _EFFECTS,
    ),
    Guard(
        "once-replays-in-a-new-round",
        _ENGINE + "effects/recorded_call.py",
        "earlier = None if terms.repeat else _earlier(attempt, call, arguments)",
        "earlier = None",
        ("tests/engine/effects/test_identity.py",),
    ),
    Guard(
        "effect-moves",
        "src/holdfast/model/commit.py",
        "    return after not in EFFECT_MOVES[before]\n",
        "    return False\n",
        _contract("table_of_moves"),
    ),
    Guard(
        "fence",
        "src/holdfast/model/commit.py",
        "    if task.fence != held.fence or task.owner != held.owner:\n",
        "    if False:\n",
        _contract("superseded"),
    ),
    Guard(
        "fence-on-postgresql",
        _STORE + "postgres/migrations/0007_commit.sql",
        "WHEN c.request IS NULL AND (t.fence <> c.fence OR t.owner IS DISTINCT FROM c.owner) THEN 'superseded'",
        "WHEN false THEN 'superseded'",
        _contract("superseded"),
    ),
    # Approvals
    Guard(
        "approval-is-for-these-arguments",
        _STORE + "sqlite/operations.py",
        "if approval.arguments_hash != op.arguments_hash:",
        "if False:",
        _contract("changed_arguments"),
    ),
    Guard(
        "approval-is-for-these-arguments-on-postgresql",
        _STORE + "postgres/migrations/0006_operations.sql",
        "WHEN a.arguments_hash <> op ->> 'arguments_hash' THEN 'for other arguments'",
        "WHEN false THEN ''",
        _contract("changed_arguments"),
    ),
    Guard(
        "approval-is-used-once",
        _STORE + "sqlite/operations.py",
        "if approval.consumed_by not in {None, op.effect_id}:",
        "if False:",
        _contract("used_for_one_effect"),
    ),
    Guard(
        "approval-is-consumed",
        _ENGINE + "effects/once_step.py",
        "        if armed.approval_id is not None:\n",
        "        if False:\n",
        _APPROVALS,
    ),
    Guard(
        "what-is-agreed-to-is-called",
        _ENGINE + "effects/once_step.py",
        "call = replace(call, args=deepcopy(call.args), is_fixed=True)",
        "pass",
        _RACES,
    ),
    Guard(
        "changed-arguments-void",
        _ENGINE + "steps/approval.py",
        "is_same = recorded is not None and recorded.digest == fingerprint",
        "is_same = recorded is not None",
        _APPROVALS,
    ),
    Guard(
        "void-is-written",
        _ENGINE + "steps/approval.py",
        "if before is not None and before.digest != line.digest:",
        "if False:",
        _APPROVALS,
    ),
    Guard(
        "one-decision",
        _STORE + "sqlite/operations.py",
        "if approval.state is not ApprovalState.OPEN:",
        "if False:",
        _contract("decision_is_made_once"),
    ),
    Guard(
        "deciders",
        _STORE + "sqlite/operations.py",
        "if approval.deciders and op.by not in approval.deciders and not is_taken_back:",
        "if False:",
        _contract("only_a_decider"),
    ),
    Guard(
        "expiry",
        _STORE + "sqlite/operations.py",
        "if approval.expires_at is not None and micros(approval.expires_at) <= tx.now:",
        "if False:",
        _contract("expiry"),
    ),
    # Sagas
    Guard(
        "undo-is-required",
        _ENGINE + "attempt/outcome.py",
        "    if attempt.outbox.must_undo:\n",
        "    if False:\n",
        _SAGAS,
    ),
    Guard(
        "doubt-before-undo",
        _ENGINE + "effects/compensation.py",
        "            await _clear_up(attempt, effect)\n",
        "            pass\n",
        _SAGAS,
    ),
    Guard(
        "undo-in-reverse",
        _ENGINE + "effects/compensation.py",
        "key=lambda effect: began[effect.effect_id], reverse=True)",
        "key=lambda effect: began[effect.effect_id])",
        _SAGAS,
    ),
    Guard(
        "undo-inside-out",
        _ENGINE + "effects/compensation.py",
        "began[outer] = min(began[outer], (line.position, depth))",
        "pass",
        _SCOPES,
    ),
    Guard(
        "replay-does-nothing",
        _ENGINE + "attempt/attempt.py",
        "            await self.discovery.block()\n",
        "            pass\n",
        _SAGAS,
    ),
    Guard(
        "cancel-does-not-stop-the-undoing",
        _ENGINE + "attempt/attempt.py",
        "        if self.undoing is not None and not isinstance(why, HandedBack):\n",
        "        if False:\n",
        _SAGAS,
    ),
    Guard(
        "undone-is-a-new-effect",
        _ENGINE + "effects/recorded_call.py",
        'effect_id(task.id, task.round, call.key, after=recorded.effect_id or "")',
        "effect_id(task.id, task.round, call.key)",
        _SAGAS,
    ),
    Guard(
        "failed-undo-needs-a-person",
        _ENGINE + "effects/compensation.py",
        "        await _ask_about_undo(attempt, effect, error)\n        return False\n",
        "        return True\n",
        _SAGAS,
    ),
    Guard(
        "undone-by-hand-is-written",
        _ENGINE + "effects/compensation.py",
        "        if is_undone and step is not None and step.undone_at is None:\n",
        "        if False:\n",
        _SAGAS,
    ),
    Guard(
        "undo-in-doubt-does-not-block",
        _ENGINE + "effects/doubt.py",
        "        case Unknown(why) if step.call.kind == UNDO:\n",
        "        case Unknown(why) if False:\n",
        _SAGAS,
    ),
    Guard(
        "deadline-does-not-wake-the-undoing",
        _STORE + "sqlite/operations.py",
        "row.must_undo, row.undoing = int(required), int(begun)",
        "row.must_undo, row.undoing = int(required), 0",
        _contract("undo or undone"),
    ),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Remove the named guards, or all of them, and print which tests fail."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", help="guards to remove; all of them by default")
    parser.add_argument("--list", action="store_true", help="only list the guards")
    asked = parser.parse_args(arguments)
    unknown = set(asked.names) - {guard.name for guard in GUARDS}
    if unknown:
        parser.error(f"no such guard: {', '.join(sorted(unknown))}")
    chosen = [guard for guard in GUARDS if not asked.names or guard.name in asked.names]
    if asked.list:
        print("\n".join(f"{guard.name:45} {guard.file}" for guard in chosen))
        return 0
    missed = [guard.name for guard in chosen if not _is_noticed(guard)]
    print(f"{len(chosen) - len(missed)} of {len(chosen)} guards are noticed when they are removed", flush=True)
    if missed:
        print(f"no test fails without: {', '.join(missed)}", file=sys.stderr)
    return int(bool(missed))


def _is_noticed(guard: Guard) -> bool:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="holdfast-guards-") as folder:
        copy = Path(folder) / "project"
        ignored = shutil.ignore_patterns(
            ".git", ".venv", ".venv-3.*", ".bench-venv", "__pycache__", ".*_cache", ".hypothesis"
        )
        shutil.copytree(ROOT, copy, ignore=ignored)
        remove(guard, copy)
        # First in the search path: before the installed project, which still has the guard.
        environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-n", "2", *guard.tests]
        try:
            done = subprocess.run(  # noqa: S603 - our own tests
                command, cwd=copy, env=environment, capture_output=True, text=True, check=False, timeout=LONGEST
            )
            how = _first_failure(done.stdout)
            noticed = done.returncode != 0 and bool(how)
            if done.returncode != 0 and not how:
                how = f"the tests could not be run: {done.stdout[-300:]}{done.stderr[-300:]}"
        except subprocess.TimeoutExpired:
            noticed, how = True, f"the tests hung for {LONGEST:g} s"
    mark = "noticed" if noticed else "MISSED "
    print(f"{mark} {guard.name:45} {time.monotonic() - began:5.0f} s  {how}", flush=True)
    return noticed


def remove(guard: Guard, project: Path) -> None:
    """Remove a guard from a copy of the project."""
    file = project / guard.file
    text = file.read_text(encoding="utf-8")
    if text.count(guard.there) != 1:
        raise LookupError(f"guard {guard.name!r} is {text.count(guard.there)} times in {guard.file}, not once")
    file.write_text(text.replace(guard.there, guard.gone), encoding="utf-8")


def _first_failure(output: str) -> str:
    lines = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return lines[0][:140] if lines else ""


if __name__ == "__main__":
    raise SystemExit(main())

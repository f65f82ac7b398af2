"""The history of the PostgreSQL schema: numbered SQL files, applied in order, never edited once released.

Functions, each in the file that defines it as it is now:

0001_rules.sql             is_legal_effect_move, is_sound, is_terminal, rank_of, readiness
0003_waking.sql            after_the_end, count_as_spent, start_waiting, stop_waiting, wake
0004_locking.sql           insist_on_read_committed, lock_accounts, lock_channels, lock_latecomers, lock_names,
                           lock_tasks, waiters
0005_submitting.sql        append_event, emit
0006_operations.sql        consume_approval, decide, open_approval, refuse, require_quiet, reserve, rotate_checkpoints,
                           save_checkpoint, set_limits, settle, submit_child, write_effect
0007_commit.sql            apply_alone, apply_in_order, apply_run, commit_batch, ends_an_awaited_task, follow_up
0008_plain_commits.sql     with_nothing_loose
0009_leasing.sql           drain, living_worker, retire, take_back
0010_sweeping.sql          endable, error_body, expire_approvals, fail, iso, make_ready, next_due, pass_deadlines,
                           wake_timers
0011_remembering.sql       forget, remember
0013_event_positions.sql   event_cluster, reason_to_go_on
0014_deadlines.sql         write_tasks
0015_kinship.sql           is_legal_move, judge, prunable
0016_residents.sql         recover
0018_outages.sql           declare_dead, sweep
0021_pauses.sql            answer, choose, claimable, forget_pause, heartbeat, pause_of, ready_lines, unpause, unpaused
0022_labels.sql            index_labelled_end, index_labels, unindex_labels
0023_full_queues.sql       count_again, note_moved, note_submitted
0024_schedules.sql         put_schedule
0025_replacing.sql         submit, submit_replacing
0026_queue_settings.sql    choose_within, count_slots, has_slot, hint_of_place, is_at_work, lock_places, lock_slots,
                           note_slot_left, open_queues, set_queue, stop_writing_tasks, take_places
0027_limits.sql            charge, close_limit, end_of_use, enter_line, follow_limited_task, is_open, lock_keys,
                           look_later, make_keys, note_key, note_limited_task, note_lines, note_those_with_lines,
                           pause_limit, require_limits, rooms, set_limit, settle_keys, standings, unpause_limit
0028_permits_of_tasks.sql  acquire, admit, apply_batch, apply_operation, claim, commit_plain, has_noted_line, hints_of,
                           lines_of, promote, promote_for_claim, promote_line, replace_waiting, rest, submit_distinct,
                           take_keys, take_what_it_needs
0029_permits_of_steps.sql  dead_permit_holders, end_of_call, fitting, idle_keys, limit_work, renew_permits,
                           return_permits, sweep_keys, sweep_permits, take_permits
0030_registering.sql       pause, register
0031_retention.sql         delete_tasks, kept_no_longer, prune, prune_kept, prune_queue, set_retention
0032_fair_queues.sql       add_turns_up, enter_queue, fair_among, first_turn, follow_fair_task, give_turns,
                           give_turns_in, go_on_to_turns, lacks_turns, last_turn, note_pending, rank_of_turn, set_turns,
                           turn_of_rank
0033_next_tick.sql         next_tick
0034_feed.sql              append_feed, begin_feed, feed_account, feed_approval, feed_effect, feed_event, feed_schedule,
                           feed_transitions, feed_worker, next_pass, pass_on, prune_feed, read_feed, reopen_child,
                           rows_of_pass, write_journal
"""

"""Where each fault that other engines shipped is tested, by its symptom, or why it cannot happen.

| symptom elsewhere | here |
|---|---|
| layers disagree on the state; worse with more programs (#50432, #49436) | test_kernels `test_layers_agree_on_the_state`, test_store `test_layers_disagree_on_the_state`, the racy form in gpu/device/test_state |
| a mismatch now and then (#50729) | test_kernels `test_shift_within_a_block_is_exact` |
| repeated tokens, counts of another row (#51571, #51599, #53919) | test_kernels `test_counts_of_another_request_are_not_read`, test_store `test_counts_of_another_request_are_refused` |
| silent wrong output after a chunk that ended mid-block (#43559, #51113) | test_rules `test_state_published_at_a_boundary_was_computed_to_it`, test_store `test_a_claim_must_have_the_offset_of_the_state` |
| needle loss, leaked or repeated text with drafts (#53912, #48375, #57128, #47194) | test_rules `test_hit_respects_the_dropped_block`, test_store `test_hash_over_rejected_drafts` |
| illegal memory access on resume (#53142, #54173) | test_rules `test_illegal_memory_access_on_resume`, test_kernels `test_a_sequence_is_added_with_the_block_of_its_state` |
| no reuse, or a poisoned hash: chunk grid of another group (#54076) | cannot happen: `Prompt.block` is the state's own, and a claim is checked against the recorded offset |
| repeat of an exact-multiple prompt hits 0 (#50235, #50409) | test_rules `test_repeat_of_an_exact_multiple_prompt_hits`, test_store `test_the_same_prompt_twice` |
| placeholders folded into the state (#55178) | test_store `test_placeholders_behind_a_prompt_are_not_kept` |
| garbage with drafts and chunked prompts (#35447) | test_store `test_accepted_starts_anew_with_a_chunk` |
| shared prefix overwritten, NaN tail (#56196) | test_store `test_a_chunk_shorter_than_the_window` |
| bytes of the previous tenant (#56524, #35219) | test_store `test_bytes_of_the_previous_tenant` |
| 71 blocks held in place of 8 (#55450) | test_rules `test_retirement_skips_gaps`, test_store `test_no_more_is_held_than_the_columns_say` |
| requeued forever (#52520) | test_store `test_requeued_forever_near_the_ceiling`, test_rules `test_a_block_larger_than_any_chunk_is_filled_in_pieces` |
| hit claimed but state dropped (#46453, #45804) | cannot happen: a hit is one claim with its block, there is no list to trim; test_store checks the state that every hit leads to |
| "backward copy" (#53505) | the normal checkpoint: test_rules `test_rules_agree_with_the_simulation` |
| stale rows of captured tables | test_kernels `test_rows_of_a_batch_find_their_slots` |
| device assertion far downstream: row stride lost (#45473, #49291) | test_kernels `test_shift_keeps_each_dimension_apart` |
| next block's window overwritten (240723d46) | test_kernels `test_next_block_keeps_its_window` |
| accepted wrongly reset under aliased blocks (959ca0fd) | test_kernels `test_postprocess` [B8]: columns are compared, not addresses |
| stale column after a resume | test_kernels `test_stale_column_of_a_resumed_sequence`, test_store `test_preempted_and_resumed` |
| offset lost in a step without drafts | test_rules `test_offset_of_a_row_without_drafts`, test_store `test_offset_lost_for_a_step_without_drafts` |
| 0 cached tokens in growing turns (#43587, #52897) | test_store `test_a_conversation_goes_on_where_it_ended` |
| resume point not on the block grid (#53945) | test_rules `test_chunks`: a start inside a block stops at its end |
| stale state after an aborted load (SGLang #30986) | test_faults `test_stale_state_after_an_aborted_load` |
| slot leaks, corrupt tree (SGLang #29349, #16067, #12007, #36696) | test_faults, and `check` of test_property counts every user of every block |
| wrong-position snapshot, live alias of a donated block (SGLang #37836, #29973, LMCache #4247) | test_property: every cached state against a recomputation; a committed block is never written again |
"""  # noqa: E501

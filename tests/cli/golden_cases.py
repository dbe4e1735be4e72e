"""The commands whose output stands in tests/golden/cli."""

# name -> arguments as typed in a shell. Names ending in _ascii run under LC_ALL=C.
GOLDEN_CASES = {
    "show_2d": 'show --mesh dp=2,tp=4 --shape 8x16 --placements "S(0) S(1)"',
    "show_2d_ascii": 'show --mesh 2x4 --shape 8x16 --placements "S(0) S(1)"',
    "show_text": 'show "f32[8, 16] S(0) R @ mesh(dp=2, tp=4)"',
    "show_uneven": 'show "[5, 6] S(0) S(1) @ mesh(4, 2)"',
    "show_nested": 'show "[10] S(0) S(0) @ mesh(dp=2, tp=2)"',
    "show_strided": 'show "[8, 6] SS(0,2) S(0) @ mesh(dp=2, tp=2)"',
    "show_strided_table": 'show --table "[8, 6] SS(0,2) R @ mesh(dp=2, tp=2)"',
    "show_turns": 'show "[8] S(0)[1] S(0)[0] @ mesh(dp=2, tp=2)"',
    "show_ragged": 'show "[8, 4] RS(0,[3,0,5]) @ mesh(3)"',
    "show_partial": 'show "[4, 4] P(sum) S(1) @ mesh(dp=2, tp=2)"',
    "show_partial_copies": 'show "[6] R P(max) S(0) @ mesh(2, 2, 3)"',
    "show_replicated": 'show "[4, 4] R R @ mesh(dp=2, tp=4)"',
    "show_3d": 'show --mesh 2x2x2 --shape 4x6x8 --placements "S(0) S(1) S(2)"',
    "show_0d": 'show "[] R @ mesh(4)"',
    "show_empty": 'show "[0, 4] S(0) @ mesh(2)"',
    "show_more_ranks_than_rows": 'show "[3] S(0) @ mesh(5)"',
    "show_large": 'show --mesh 256x256 --shape 1048576x1048576 '
                  '--placements "S(0) S(1)"',
    "show_large_ascii": 'show --mesh 256x256 --shape 1048576x1048576 '
                        '--placements "S(0) S(1)"',
    "show_many_ranks_table": 'show --mesh 1024 --shape 64x64x64 --placements "S(0)"',
    "show_1d_too_wide": 'show "[100] S(0) @ mesh(20)"',
    "show_many_copies": 'show --mesh 512x64 --shape 6 --placements "R S(0)"',
    "show_rank": 'show "[8, 6] SS(0,2) P(sum) @ mesh(dp=2, tp=2)" --rank 3',
    "show_rank_empty": 'show "[3] S(0) @ mesh(5)" --rank 4',
    "show_json": 'show "[5, 4] S(0) R @ mesh(dp=2, tp=2)" --json',
    "show_rank_json": 'show --mesh 256x256 --shape 1048576x1048576 '
                      '--placements "S(0) S(1)" --rank 65535 --json',
    "show_xla": 'show "[8, 16] S(1) S(0) @ mesh(dp=2, tp=4)" --xla',
    "show_xla_rank": 'show "[4, 4] P(max) S(1) @ mesh(2, 2; ranks 3 1 2 0)" '
                     '--rank 2 --xla',
    "show_xla_json": 'show "[4] S(0) R @ mesh(dp=2, tp=2)" --xla --json',
    "ops_name": "ops aten::addmm",
    "ops_long_names": "ops scaled_dot_product_flash_attention_for_cpu",
    "ops_form": "ops aten::mm --form factors --json",
    "ops_rules": "ops --rules aten::baddbmm",
    "ops_none": "ops no_such_operator",
    "error_ops_form": "ops --form pointwide",
    "plan_other_mesh": 'plan --mesh dp=2,tp=2 --to-mesh 3 --shape 6x4 '
                       '--from "P(sum) S(0)" --to "S(1)"',
    "plan_cut_first": 'plan --mesh dp=2,tp=4 --shape 256x256 --dtype f32 '
                      '--from "S(0) R" --to "R S(1)"',
    "plan_exchange": 'plan --mesh 2x4 --shape 1024x1024 --dtype bf16 '
                     '--from "S(0) S(0)" --to "S(1) S(1)"',
    "plan_all_dims": 'plan --mesh 2x2x2 --shape 64x64 '
                     '--from "P(sum) P(sum) P(sum)" --to "R R R"',
    "plan_all_cuts": 'plan --mesh 2x2x2 --shape 13x5 '
                     '--from "S(0)[2] S(0)[0] S(0)[1]" --to "R R R"',
    "plan_nothing": 'plan --mesh 4 --shape 8 --from "S(0)" --to "S(0)"',
    "plan_json": 'plan --mesh dp=2,tp=4 --shape 256x256 '
                 '--from "S(0) R" --to "R S(1)" --json',
    "error_plan_dtype": 'plan --mesh 2 --shape 8 --dtype f33 --from R --to R',
    "error_plan_placement": 'plan --mesh 2 --shape 8 --from R --to "S(1)"',
    "error_no_subcommand": "",
    "error_unknown_subcommand": "shwo",
    "error_missing_part": "show --mesh 2x4 --shape 8x16",
    "error_both_forms": 'show "[4] R @ mesh(2)" --mesh 2',
    "error_placement_text": 'show --mesh 2 --shape 8 --placements "Q(0)"',
    "error_placement_count": 'show --mesh 2x4 --shape 8x16 --placements "S(0)"',
    "error_dim_range": 'show --mesh 2 --shape 8 --placements "S(1)"',
    "error_mesh_text": 'show --mesh 2xx4 --shape 8 --placements "R R"',
    "error_shape_text": 'show --mesh 2 --shape 8y --placements "R"',
    "error_ragged_sum": 'show "[8] RS(0,[3,3]) @ mesh(2)"',
    "error_rank_outside": 'show "[8] S(0) @ mesh(2)" --rank 2',
    "error_rank_negative": 'show "[8] S(0) @ mesh(2)" --rank -1',
    "error_xla_uneven": 'show "[5] S(0) S(0) @ mesh(2, 2)" --xla',
    "error_xla_ragged": 'show "[8] RS(0,[3,5]) @ mesh(2)" --xla --json',
    "error_run_no_program": "run -n 2",
    "error_run_no_dashes": "run -n 2 ./train --steps 3",
    "error_run_zero_ranks": "run -n 0 -- true",
    "error_run_engine": "run -n 2 --engine nccl -- true",
    "error_run_not_found": "run -n 2 -- no-such-program",
}

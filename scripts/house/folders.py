#!/usr/bin/env python3
"""Moves the sources of one flat folder per layer into folders inside the layers.

The table below says where each file of src/ and tests/ goes. Two modes, so that no
commit both moves and edits:

  scripts/house/folders.py --move      git mv, nothing else; then commit
  scripts/house/folders.py --includes  rewrites #include lines, lists of sources and
                                       paths in scripts, docs and comments; then
                                       scripts/check_format.py --fix; then commit
  scripts/house/folders.py --check     prints what either mode would still do

Both do nothing the second time. A branch that began before the move is brought over
by running them on it, each with a commit of its own, and then merging: both sides
have moved the same files then, and git merges their texts. A file that such a branch
has added goes by hand to the folder of its neighbours. Where a merge stops in a file
that only this script has changed on one side (docs, CMake lists), take the other
side's version and run --includes again.
"""
import argparse
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Old folder: {new folder: files}. "x" stands for x.h and x.cpp, as far as they are
# there, "x=y" renames.
TABLE = {
    "src/layout": {
        "src/layout": "mesh_view=mesh_shape_view",
        "src/layout/boxes": "box box_overlap box_cover box_grid=box_layout_grid"
                            " box_layout device_kind",
        "src/layout/xla": "xla_axes xla_hlo_mesh xla_hlo_print xla_hlo_read"
                          " xla_hlo_text xla_shardy",
    },
    "src/plan": {
        "src/plan/transfer": "exchange box_exchange=exchange_tiles",
        "src/plan/search": "redistribute_plan search states transitions",
    },
    "src/comm": {
        "src/comm/call": "strided_copy",
        "src/comm/log": "call_cause",
        "src/comm/engine": "launch random_counters rank_guard.h=guarded_rank.h",
        "src/comm": "pull=direct",
    },
    "src/comm/engine": {
        "src/comm/call": "call check_call reduce device_reduce stream_order"
                         " parts=shared_memory_collectives",
        "src/comm/log": "call_records flight_recorder flight_print",
        "src/comm/engine/threads": "threads threads_operation threads_failure",
    },
    "src/comm/engine/process": {
        "src/comm": "process_ranks",
        "src/comm/engine/process": "wire=transport news=peer_events"
                                   " process_transfer=process_call_transfer",
    },
    "src/comm/engine/mpi": {
        "src/comm/engine/mpi": "mpi_network=mpi_transport",
    },
    "src/comm/engine/c10d": {
        "src/comm/engine/c10d": "gloo_wire=gloo_channel backend_wire=backend_channel"
                                " c10d_network=c10d_transport",
        "src/comm/engine/c10d/store": "folder_store joining_store job_store"
                                      " meeting_point store_news=store_events",
    },
    "src/tensor": {
        "src/tensor/state": "strides torch_compat spec_fwd spare_parts=object_pool"
                            " wrapper_parts=wrapper_pools"
                            " dispatch.h=plain_is_replicated.h",
        "src/tensor/impl": "sharded_impl.h dtensor_spec wrapper=wrap",
        "src/tensor/move": "region pieces=strided_copies box_moves box_exchange"
                           " blocks=cpu_block_cache step_label prepared_plan"
                           " plan_cache execute movement=redistribute_shard"
                           " sharded_impl.cpp=view_copies.cpp",
        "src/tensor/call": "op_call op_traits ruled_call=rule_operands decision"
                           " result_specs decompositions.h=decomposition.h"
                           " local_kernels.h=local_kernel.h",
        "src/tensor/checks": "agreement replicas replication_check gradient_check"
                             " strict.h=strict_mode.h strict_mode.cpp",
        "src/tensor/run": "ways.h=run_decision.h run_decided=run_decision"
                          " run_outside=run_off_mesh special_ops=custom_kernels"
                          " local_kernels.cpp local_lookup local_views strided_views",
        "src/tensor/decompositions": "decompositions.cpp=table.cpp",
        "src/tensor/autograd": "autograd.cpp=local.cpp leaf_gradient local_gradient",
        "src/tensor/api": "dtensor=distribute in_place factories optimizer_state"
                          " module_name",
        "src/tensor/uses": "parameter_use loss_parallel=cross_entropy smoothed_loss",
        "src/tensor/fast": "dispatch_cache=decision_cache typed_call=typed_kernel"
                           " local_argument run_direct=run_cached",
        "src/tensor/inspect": "explain dry_run predicted_time"
                              " operators=list_operators bind_arguments",
        "src/tensor/dispatch": "dispatch.cpp=kernels.cpp several_meshes",
    },
    "src/tensor/decompositions": {
        "src/tensor/decompositions": "cut_call=decomposed_call families.h=table.h",
        "src/tensor/decompositions/norm": "batch_norm batch_norm_update layer_norm"
                                          " norms running_statistics variance",
        "src/tensor/decompositions/loss": "comparison losses nll softmax",
        "src/tensor/decompositions/other": "concat convolution extremes foreach scans"
                                           " topk",
    },
    "src/tensor/random": {
        "src/tensor/random/philox": "philox words=philox_blocks vector_math reject",
        "src/tensor/random/fill": "extent=index_ranges distribution fill fill_device",
        "src/tensor/random/ops": "fill_ops tensor_ops sample_ops row_ops table"
                                 " random_call plain=unsharded_random random",
    },
    "src/sharded_tensor": {
        "src/sharded_tensor/spec": "remote_device metadata sharding_spec shard_checks"
                                   " infer_spec narrow_tensor spec_registry"
                                   " placement_owner process_group raise"
                                   " choices=enum_codec",
        "src/sharded_tensor/format": "codec fields=archive byte_fields=byte_archive"
                                     " text_fields=text_archive"
                                     " value_fields=encode_types"
                                     " spec_fields=encode_specs serialize",
        "src/sharded_tensor/tensor": "agreement state shard sharded_tensor"
                                     " local_shards random_fill create"
                                     " move=exchange_function reshard devices remote"
                                     " save conversion mesh_of=infer_mesh logger",
        "src/sharded_tensor/module": "module_path shard_parameter parameter_plan"
                                     " sharding_plan module_output plain_gradient"
                                     " state_dict sharded_optimizer"
                                     " holders=tensor_members",
    },
    "src/sharded_tensor/ops": {
        "src/sharded_tensor/ops": "library.h=builtin_ops.h"
                                  " library_ops.cpp=builtin_ops.cpp",
    },
    "tests/layout": {
        "tests/layout/boxes": "box_test box_layout_test random_tiling",
        "tests/layout/xla": "xla_test xla_random_test xla_reference",
    },
    "tests/plan": {
        "tests/plan/transfer": "exchange_test box_exchange_test=exchange_tiles_test",
        "tests/plan/search": "redistribute_plan_test simulate simulate_test"
                             " optimality_test greedy greedy_test"
                             " greedy_transitions.txt ties_test memory_test"
                             " planning_time_test brute_force brute_force_world",
    },
    "tests/comm": {
        "tests/comm/log": "comm_log_test flight_recorder_test flight_print_test",
        "tests/comm/engine": "collectives_test reductions_test mismatch_test"
                             " failure_test sizes_test launch_test",
    },
    "tests/c10d": {
        "tests/comm/engine/c10d": "CMakeLists.txt folder_store_test"
                                  " gloo_wire_test=gloo_channel_test group_ranks"
                                  " meeting_point_test plain_backend"
                                  " process_group_test",
    },
    "tests/redistribute": {
        "tests/tensor/move": "CMakeLists.txt sequences_test redistribute_test"
                             " growth_test exhaustive_test by_definition"
                             " box_exchange_test",
    },
    "tests/simulated": {
        "tests/engines/simulated": "CMakeLists.txt world_test tensors_test scale_test"
                                   " predicted_time_test collectives_test",
    },
    "tests/tensor": {
        "tests/tensor/impl": "wrapper_test=wrap_test sharing_test mesh_device_test"
                             " memory_format_test memory_format memory_format_views_test"
                             " memory_format_operators_test xla_test",
        "tests/tensor/call": "kept_shards_test=keeps_sharding_test"
                             " different_calls_test decide_calls json_call",
        "tests/tensor/checks": "strict_mode_test",
        "tests/tensor/run": "views_test strided_views_test corner_cases_test",
        "tests/tensor/random": "random_state_test=state_test"
                               " random_rows_test=rows_test random_ops"
                               " random_modules_test=modules_test"
                               " random_invariance_test=invariance_test"
                               " random_distribution_test=distribution_test"
                               " random_device_test=device_test"
                               " random_coverage_test=coverage_test",
        "tests/tensor/autograd": "gradient_pairs_test gradient_modes_test"
                                 " gradient_contract_test gradient_check_test"
                                 " numeric_gradient",
        "tests/tensor/api": "factories_test in_place_conversion_test conversion_test",
        "tests/tensor/fast": "typed_call_test=typed_kernel_test dispatch_count"
                             " callgrind_test.py",
        "tests/tensor/inspect": "explain_test explain_attention_test comm_lines"
                                " comm_log_causes_test list_operators_test",
    },
    "tests/tensor/operators": {
        "tests/tensor/run/operators": "values_test results_test mixes_and_errors_test"
                                      " writes_test defined_later_test"
                                      " composites_test scaled_products_test",
    },
    "tests/tensor/decision_cache": {
        "tests/tensor/fast/decision_cache": "call_variants dim_arguments_test"
                                            " growth_test layouts_test"
                                            " number_arguments_test"
                                            " other_arguments_test",
    },
    "tests/tensor/user_rules": {
        "tests/tensor/call/user_rules": "errors_test forms_test names_test"
                                        " own_operators",
    },
    "tests/tensor/known_bugs": {
        "tests/upstream_regressions": "call_keys_test expect_plain gradients_test"
                                      " meshes_and_random_test operators_test"
                                      " partial_elementwise_test"
                                      " partial_reductions_test uneven_shards_test"
                                      " views_and_indexing_test",
    },
    "tests/sharded_tensor": {
        "tests/sharded_tensor/spec": "remote_device_test metadata_test"
                                     " sharding_spec_test shard_rules_test"
                                     " custom_spec_test grid_spec"
                                     " expect_torch_error",
        "tests/sharded_tensor/format": "serialize_test serialize_text_test"
                                       " corrupted_test saved_examples",
        "tests/sharded_tensor/tensor": "creation_test shard_tensor_test"
                                       " remote_shards_test local_shards_test"
                                       " reshard_test devices_test save_test"
                                       " conversion_test corner_test logger_test"
                                       " family_test",
        "tests/sharded_tensor/module": "shard_module_test sharding_plan_test"
                                       " sharded_training_test"
                                       " sharded_optimizer_test state_dict_test mlp",
        "tests/sharded_tensor/ops": "ops_dispatch_test=dispatch_test"
                                    " ops_copies_test=copies_test"
                                    " ops_compare_test=compare_test"
                                    " ops_init_test=init_test"
                                    " ops_arithmetic_test=arithmetic_test"
                                    " ops_mesh_test=mesh_test"
                                    " ops_embedding_test=embedding_test"
                                    " ops_embedding_bag_test=embedding_bag_test"
                                    " ops_cuts=ops_placements",
    },
    "tests/fuzz": {
        "tests/sharded_tensor/format": "serialize_fuzz",
    },
    "tests/programs": {
        "tests/differential_fuzz": "CMakeLists.txt programs_test.py programs_probe"
                                   " program player player_communication operators"
                                   " data collectives",
    },
    "tests/checks": {
        "tests/repo_scripts": "CMakeLists.txt build_test.py check_exports_test.py"
                              " check_layers_test.py check_long_test.py"
                              " compare_upstream_test.py keywords_test.py"
                              " run_tests_test.py setup_test.py snippets_test.py"
                              " standard_library_test.py suppressions_test.py"
                              " tidy_test.py upstream_strategies_test.py",
    },
    "tests/process": {
        "tests/cli": "CMakeLists.txt bench_engines_test.py bench_threads_test.py"
                     " cli_golden_test.py cli_run_and_doctor_test.py cli_run_probe"
                     " cli_show_and_ops_test.py command_line.py demo_test.py"
                     " demo_verdict_test every_launcher_test.py golden_cases.py"
                     " late_ranks_probe late_ranks_test.py run_failures_test.py"
                     " run_job_test.py run_on_engines.py run_output_test.py",
        "tests/engines": "c10d_probe c10d_python_test.py endless_probe"
                         " engines_test.py gloo_job_probe gloo_job_test.py kill_test"
                         " mpi_test",
        "tests/layout/xla": "xla_jax_test.py",
    },
}

# Lists of names without their folder: (file, folder of the names).
BARE_LISTS = {"src/CMakeLists.txt": "src/comm/engine/c10d/"}
CODE = (".h", ".hpp", ".cpp", ".cc", ".cu", ".cuh")
# Never edited: what was recorded, trees that tests make up, and this script.
KEPT = ("scripts/house/", ".git-blame-ignore-revs", "CHANGELOG.md",
        "tests/repo_scripts/check_layers_test.py",
        "tests/repo_scripts/check_words_test.py",
        "tests/repo_scripts/rename_words_test.py")


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True,
                          capture_output=True, text=True).stdout


def expand(old_folder, new_folder, words):
    """Yields (old, new) for the files that a row of the table names."""
    for word in words.split():
        old, _, new = word.partition("=")
        new = new or old
        suffixes = [""] if "." in old else [".h", ".cpp"]
        for suffix in suffixes:
            yield (f"{old_folder}/{old}{suffix}", f"{new_folder}/{new}{suffix}")


def make_moves():
    """Returns {old path: new path}; of "x" the forms that never were, too."""
    moves = {}
    for old_folder, rows in TABLE.items():
        for new_folder, words in rows.items():
            for old, new in expand(old_folder, new_folder, words):
                assert old not in moves, f"{old} stands twice in the table"
                moves[old] = new
    chained = {old: new for old, new in moves.items() if new in moves}
    assert not chained, f"moved twice: {chained}"
    return moves


def move(moves, dry):
    """Moves what lies at its old place; returns how many files that are."""
    tracked = set(git("ls-files").splitlines())
    count = 0
    for old, new in moves.items():
        if old not in tracked or old == new:
            continue
        assert new not in tracked, f"{old}: {new} is there already"
        count += 1
        print(f"{old} -> {new}")
        if not dry:
            (ROOT / new).parent.mkdir(parents=True, exist_ok=True)
            git("mv", old, new)
    return count


class Rewriter:
    """Replaces old paths by new ones in the texts of the tree."""

    def __init__(self, moves):
        self.moves = {o: n for o, n in moves.items() if (ROOT / n).exists()}
        self.came_from = {new: old for old, new in self.moves.items()}
        tracked = git("ls-files").splitlines()
        names = {pathlib.PurePosixPath(path).name for path in tracked}
        # Renamed files are also spoken of without their folder.
        self.names = {}
        for old, new in self.moves.items():
            before, after = (pathlib.PurePosixPath(p).name for p in (old, new))
            if before != after and before not in names and \
                    before not in ("CMakeLists.txt",):
                self.names[before] = after
        self.by_path = self.pattern(self.moves)
        roots = ("src/", "tests/")
        self.short = {old[len(r):]: new[len(r):] for old, new in self.moves.items()
                      for r in roots if old.startswith(r) and new.startswith(r)}
        self.by_short = self.pattern(self.short)
        self.by_name = self.pattern(self.names)

    @staticmethod
    def pattern(words):
        longest_first = sorted(words, key=len, reverse=True)
        return re.compile(r"(?<![\w/.-])(?:" + "|".join(map(re.escape, longest_first))
                          + r")(?![\w/])") if words else re.compile(r"(?!)")

    def include(self, path, text):
        """Returns what an #include of `text` in the file `path` should say."""
        if text in self.short:
            return self.short[text]
        # Relative to where the including file was.
        folder = pathlib.PurePosixPath(self.came_from.get(path, path)).parent
        old = os.path.normpath(folder / text)
        new = self.moves.get(old, old)
        if not (ROOT / new).exists() or \
                (ROOT / path).parent.joinpath(text).resolve().exists():
            return text
        here = pathlib.PurePosixPath(path).parent
        if pathlib.PurePosixPath(new).parent == here:
            return pathlib.PurePosixPath(new).name
        for root in ("src/", "tests/"):
            if new.startswith(root):
                return new[len(root):]
        return os.path.relpath(new, here)

    def cmake_list(self, path, text):
        """Rewrites names of sources relative to the list's own folder."""
        here = pathlib.PurePosixPath(path).parent
        old_here = pathlib.PurePosixPath(self.came_from.get(path, path)).parent

        def replace(match):
            old = os.path.normpath(old_here / match[0])
            new = self.moves.get(old, old)
            if (ROOT / here / match[0]).exists() or not (ROOT / new).exists() or \
                    old == str(old_here):
                return match[0]
            if pathlib.PurePosixPath(new).is_relative_to(here):
                return os.path.relpath(new, here)
            return "${PROJECT_SOURCE_DIR}/" + new
        return re.sub(r"(?<![\w/}$.-])[a-z][\w/]*\.(?:cpp|py|txt|h)(?![\w/])", replace,
                      text)

    def rewrite(self, path, text):
        if path.endswith(CODE):
            text = re.sub(
                r'^(\s*#\s*include\s*[<"])([^>"]+)([>"])',
                lambda m: m[1] + self.include(path, m[2]) + m[3], text, flags=re.M)
        text = self.by_path.sub(lambda m: self.moves[m[0]], text)
        if path.endswith((".cmake", "CMakeLists.txt")):
            if path.startswith("tests/"):
                text = self.cmake_list(path, text)
            else:  # of headers, such lists name the public ones
                text = self.by_short.sub(
                    lambda m: self.short[m[0]] if m[0].endswith(".cpp") else m[0],
                    text)
            bare = BARE_LISTS.get(path)
            if bare:
                text = re.sub(
                    r"(?<![\w/.-])[a-z_0-9]+\.cpp(?![\w/])",
                    lambda m: self.moves.get(bare + m[0], bare + m[0])[len(bare):],
                    text)
        elif not path.endswith(CODE) or "//" in text:
            text = self.spoken(path, text)
        return text

    def spoken_path(self, match):
        is_public = (ROOT / "include/tessera" / match[0]).exists()
        return match[0] if is_public else self.short[match[0]]

    def spoken(self, path, text):
        """Rewrites what is said of files in prose and comments."""
        def line(match):
            said = match[0]
            said = self.by_short.sub(self.spoken_path, said)
            return self.by_name.sub(lambda m: self.names[m[0]], said)
        if path.endswith(CODE):
            return re.sub(r"//[^\n]*", line, text)
        return re.sub(r"[^\n]+", line, text)


def rewrite_all(moves, dry):
    """Rewrites every text of the tree; returns how many files that changes."""
    rewriter = Rewriter(moves)
    count = 0
    for path in git("ls-files").splitlines():
        file = ROOT / path
        if path.startswith(KEPT) or file.is_symlink() or not file.is_file():
            continue
        data = file.read_bytes()
        if b"\0" in data:
            continue
        text = data.decode()
        new = rewriter.rewrite(path, text)
        if new != text:
            count += 1
            print(path)
            if not dry:
                file.write_text(new)
    return count


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    mode = parser.add_mutually_exclusive_group(required=True)
    for name in ("move", "includes", "check"):
        mode.add_argument(f"--{name}", action="store_true")
    arguments = parser.parse_args()
    moves = make_moves()
    count = 0
    if arguments.move or arguments.check:
        count += move(moves, dry=arguments.check)
    if arguments.includes or arguments.check:
        count += rewrite_all(moves, dry=arguments.check)
    print(f"folders: {count} files")
    return 1 if arguments.check and count else 0


if __name__ == "__main__":
    sys.exit(main())

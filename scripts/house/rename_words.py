#!/usr/bin/env python3
"""Renames identifiers to the words of the field, by the table below.

Every row says `old -> new`, and where, if the word means several things:

  Piece -> StridedCopy           | !cut.* !xla_hlo_mesh.*
  place -> group_rank            | engine/ comm_log.* communicator.*
  Transfer -> GlooTransfer       | gloo_* unless GlooTransfer

A pattern without a slash is that of a file's name, wherever the file lies; `NAME/`
stands for all files below a folder of that name, `!` leaves files out. Patterns mean
no tests unless they begin with `tests:`. `old() -> new` means calls and declarations of
functions only. A file that is renamed or split too (FILES) matches under all its names,
a folder that was split (FOLDERS) with what left it. `unless TOKEN` leaves alone files
that contain TOKEN already: for rows whose old name is the new name of another row.

Only whole identifiers are replaced, in C++ code and in its comments. In comments,
Markdown and Python an identifier that is also an English word (`place`, `Lane`)
must stand in backticks, or beside `::` or `(`, to count. String literals, includes,
names of files and the names of gtest's suites and cases are left alone; TEXTS lists
what is replaced literally instead, everywhere: symbols looked up by name and titles of
notes. Names of the public API have no rows, StepKind::kCut aside.

A branch in progress: merge or rebase up to the commit before the one that applied
this script, run it, format, commit, then merge the rest:

  git merge COMMIT~1 && scripts/house/rename_words.py && scripts/check_format.py --fix
  git commit -am "words of the field" && git merge -X ours COMMIT

It may run any number of times: a second run changes nothing, and says so.

  scripts/house/rename_words.py                 apply, print what changed
  scripts/house/rename_words.py --dry-run       print only
  scripts/house/rename_words.py --collisions    new names that a file already uses
"""
import argparse
import collections
import fnmatch
import pathlib
import re
import subprocess
import sys
from typing import NamedTuple

AREAS = ("src", "include", "cli", "python", "tests", "examples", "benchmarks",
         "docs", "ARCHITECTURE.md", "CONTRIBUTING.md", "README.md")
CODE = (".h", ".cpp", ".cu", ".cuh")
PROSE = (".md", ".py", ".pyi", ".supp")
OWN_TESTS = ("rename_words_test.py", "check_words_test.py")

# Names of files before and after they are renamed or split, without suffixes.
FILES = {
    "autograd": "local redistribute",
    "backend_wire": "backend_channel",
    "blocks": "cpu_block_cache",
    "box_grid": "box_layout_grid",
    "box_moves": "transfer_plan",
    "byte_fields": "byte_archive",
    "c10d_network": "c10d_transport",
    "choices": "enum_codec",
    "cut_call": "decomposed_call",
    "decision": "moves result_specs",
    "decompositions": "table",
    "dispatch": "kernels registration operator_tables",
    "dispatch_cache": "decision_cache call_key thread_dispatch",
    "dtensor": "distribute",
    "extent": "index_ranges",
    "fields": "archive",
    "gloo_wire": "gloo_channel",
    "holders": "replica_groups tensor_members",
    "library": "builtin_ops",
    "library_ops": "builtin_ops",
    "loss_parallel": "cross_entropy",
    "mesh_of": "infer_mesh",
    "mesh_view": "mesh_shape_view",
    "move": "exchange_function",
    "movement": "redistribute_shard",
    "mpi_network": "mpi_transport",
    "news": "peer_events peer_event",
    "operators": "list_operators",
    "parts": "shared_memory_collectives",
    "pieces": "strided_copies",
    "plain": "unsharded_random plain_draws",
    "process_transfer": "process_call_transfer",
    "pull": "direct",
    "ruled_call": "rule_operands",
    "run_decided": "run_decision",
    "run_direct": "run_cached",
    "run_outside": "run_off_mesh",
    "sharded_impl": "view_copies wrap",
    "spare_parts": "object_pool",
    "spec_fields": "encode_specs",
    "special_ops": "custom_kernels",
    "store_news": "store_events",
    "text_fields": "text_archive",
    "torch_part": "torch_backend",
    "typed_call": "typed_kernel",
    "value_fields": "encode_types",
    "ways": "execution",
    "wire": "transport channel",
    "words": "philox_blocks",
    "wrapper": "wrap sharded_impl wrapper_pools",
    "wrapper_parts": "wrapper_pools",
}

# Folders that were split, and what left them.
FOLDERS = {
    "engine/": ("comm/call/*", "comm/log/*", "comm/process_ranks.*"),
}

ROWS = """
# 1. Object pools.
SpareParts -> ObjectPool
WrapperParts -> WrapperPools
kMostSpare -> kPoolCapacity
Part -> Object                          | spare_parts.*
part -> object                          | spare_parts.*
parts_ -> objects_                      | spare_parts.*
take_slowly -> take_from_depot
give_slowly -> give_to_depot
spare -> pools                          | wrapper.* sharded_impl.* dispatch_cache.* thread_state.*

# 2. What wrappers are copied from. "Form" stays the kind of a rule.
WrapperForm -> WrapperTemplate
ResultForms -> ResultTemplates
form_of_result -> template_of_result
find_form -> make_template
forms -> templates                      | decision.* result_specs.*
form -> wrapper_template                | wrapper.* wrapper_template.* decision.* result_specs.* run_decided.* run_direct.* typed_call.*
make_formed -> make_from_template
takes_form_only -> reads_metadata_only
form_only -> metadata_only              | dispatch.* kernels.*

# 3. Strided copies. A cut's own pieces (layout) stay.
Piece -> StridedCopy                    | !cut.* !xla_hlo_mesh.* !tests/
Pieces -> StridedCopies                 | !cut.* !tests/
piece -> strided                        | strided_copy.*
piece -> copy                           | pieces.* box_moves.* prepared_plan.*
pieces -> copies                        | strided_copy.* pieces.* box_moves.* prepared_plan.* execute.*
piece_ -> strided_                      | strided_copy.*
pieces_of -> copies_of                  | pieces.*
pieces_between -> copies_between
copy_pieces -> run_copies

# 4. Collectives in shared memory.
run_part -> run_chunk
chunk -> per_chunk                      | parts.* unless run_chunk
part -> chunk                           | parts.* threads_operation.* threads.h
parts -> chunks                         | threads_operation.* threads.h
Part -> ChunkState                      | threads_operation.* threads.h
run_part_unlocked -> run_chunk_unlocked
run_open_parts -> run_open_chunks
pull_part -> read_chunk
all_gather_part -> all_gather_chunk
all_to_all_part -> all_to_all_chunk
all_reduce_part -> all_reduce_chunk
reduce_scatter_part -> reduce_scatter_chunk
enter_parts -> enter_chunks
leave_parts -> leave_chunks
join_parts -> join_chunks
kOnePartBytes -> kOneChunkBytes
part_count -> chunk_count               | threads_operation.*

# 5. Direct reads of other ranks' memory.
can_pull -> shares_memory
all_gather_by_pulls -> all_gather_direct
all_to_all_by_pulls -> all_to_all_direct
pulls -> reads                          | pull.* communicator.* call.h check_call.* parts.* box_moves.* prepared_plan.* execute.* box_exchange.*
pulls_ -> reads_directly_               | prepared_plan.*
by_pulls -> reads_directly              | box_moves.*
by_pulls_ -> reads_directly_            | box_moves.*
pulled -> read_copies                   | box_moves.*

# 6. Which elements of the global shape a shard holds.
Extent -> GlobalIndexRanges
PlaceRange -> IndexRange
extent -> ranges                        | random/ random_fill.*

# 7. Places.
place -> group_rank                     | engine/ comm_log.* communicator.* !flight_print.* !stream_order.*
place_ -> group_rank_                   | engine/ table_lookup.*
places -> group_ranks                   | engine/ communicator.* box_moves.* !flight_print.*
place_of -> group_rank_of               | engine/
my_place -> my_group_rank               | engine/
place_key -> group_rank_key
wanted_place -> wanted_output           | flight_print.*
place -> output                         | flight_print.*
place -> linear_index                   | random/
place_ -> linear_index_                 | random/
places -> linear_indices                | random/
Place -> Bucket                         | dispatch_cache.*
place -> bucket                         | dispatch_cache.*
places_ -> buckets_                     | dispatch_cache.*
kPlaces -> kBuckets                     | dispatch_cache.*
Place -> CutTarget                      | cut.* layout_owner.*
place_of -> target_of                   | cut.* layout_owner.*
place -> target                         | layout_owner.*
place -> mesh_index                     | replicas.*
place -> coordinate                     | exchange.*
places -> indices                       | extremes.* scans.* topk.*
place -> global_index                   | scans.*
place -> flat_index                     | extremes.*
place -> target_index                   | nll.*
all_places -> all_indices               | topk.*
places_before -> indices_before         | scans.*
Place -> RankPosition                   | save.*
place_in -> position_in                 | save.*
place -> position                       | save.*
check_place -> check_position           | save.*
place -> location                       | byte_fields.* fields.* text_fields.*
place -> index                          | run_on_boxes.*

# 8. Words: what a cache key is made of, a block of random bits, a command's argv.
words -> key_data                       | dispatch_cache.*
words_ -> key_data_                     | dispatch_cache.*
Words4 -> PhiloxBlock
Words -> Argv                           | run.* run_mpi.* run_processes.*
words -> argv                           | run.* run_processes.* engine_worker.* run_mpi.* command.*
mpirun_words -> mpirun_argv
write_words -> write_argv
read_words -> read_argv
words -> arguments                      | main.cpp command_line.*
word -> event                           | run_mpi.*
Word -> RankEvent                       | run_mpi.*

# 9. Events of peers.
News -> PeerEvent
StoreNews -> StoreEvents
tell -> notify                          | engine/
news() -> poll_events                   | engine/
news -> event                           | engine/
news_from -> event_from
read_news -> read_events                | store_news.*
news_ -> events_                        | c10d_network.*
kNewsTag -> kEventTag
kNewsPollInterval -> kEventPollInterval

# 10. Channels, transports, transfers.
Transfer -> GlooTransfer                | gloo_* unless GlooTransfer
TransferTransit -> SharedGlooTransfer
MessageTransit -> SharedGlooMessage
Transit -> Transfer
TransitPtr -> TransferPtr
MpiTransit -> MpiTransfer
StagedTransit -> StagedTransfer
transit_of -> transfer_of
transit -> transfer                     | mpi_network.*
transit_ -> transfer_                   | process_call.* process_transfer.*
Wire -> Channel
GlooWire -> GlooChannel
MpiWire -> MpiChannel
BackendWire -> BackendChannel
kWire -> kChannel
make_gloo_wire -> make_gloo_channel
make_backend_wire -> make_backend_channel
gloo_wire -> gloo_channel
wire -> channel                         | engine/
wire -> sent_dtype                      | autograd.*
wire_ -> channel_                       | engine/
Network -> Transport
NetworkParts -> TransportParts
C10dNetwork -> C10dTransport
MpiNetwork -> MpiTransport
InnerNetwork -> InnerTransport
MakeNetwork -> MakeTransport
open_gloo_network -> open_gloo_transport
open_group_network -> open_group_transport
load_network -> load_transport
network -> transport                    | process_ranks.* process_world.*
network_ -> transport_                  | process_world.*
tessera_mpi_network -> tessera_mpi_transport

# 11. Fingerprints of collectives, and their mismatches.
CallFacts -> CollectiveFingerprint
CauseFacts -> CauseFingerprint
facts_of -> fingerprint_of
facts -> fingerprint                    | call.* call_cause.* process_call.*
kFacts -> kFingerprints
start_facts -> start_fingerprints
check_facts -> check_fingerprints
came_with_facts -> came_with_fingerprints
current_cause_facts -> current_cause_fingerprint
disagreement -> mismatch
Disagreement -> Mismatch

# 12. Calls in order.
Lane -> CallSequence
LaneKey -> CallSequenceKey
lane_of -> call_sequence_of
lane_id -> call_sequence_id
lane_ -> call_sequence_
lanes_ -> call_sequences_
lane -> sequence                        | news.*
lane -> call_sequence                   | process_call.*
lanes -> sequences                      | news.*

# 13. Cut: a dim is sharded, data are sliced, lists are split. The class Cut and
# Layout::cuts(), which is public, stay, and with them the cuts of layout and plan.
kCut -> kSlice
CutCall -> DecomposedCall
cut -> sharded                          | row_ops.*
cut_ -> decomposed_                     | running_statistics.*
cut -> decomposed                       | decompositions/
cut -> slice                            | execute.*
cut_shard -> slice_shard
cut -> sliced                           | factories.*
cut -> shard                            | dtensor.* distribute.* in_place.*
CutFn -> ShardFn
cut -> sharded                          | run_outside.* local_map.* forms.*
has_cut_argument -> has_sharded_argument
cut_sizes -> sharded_sizes
cuts_named_dim -> shards_named_dim
cuts_any -> shards_any
cuts_of -> mesh_dims_of_shards          | decompositions/ smoothed_loss.*
cuts -> mesh_dims                       | concat.* scans.*
cuts -> sharded_mesh_dims               | foreach.*
is_cut_and_not_empty -> is_sharded_and_not_empty
is_floating_and_cut -> is_floating_and_sharded
is_cut -> has_sharded_input             | decompositions/
CutConvolution -> ShardedConvolution
spatial_cut -> sharded_spatial_dim
cuts_input -> shards_input
cuts_what_is_averaged -> shards_averaged_dims
cuts_an_operand -> shards_an_operand
cuts_normalized_dim -> shards_normalized_dim
cuts_classes -> shards_classes
cuts -> shards_dim                      | loss_parallel.* cross_entropy.*
mean_is_cut -> mean_is_sharded
gradient_is_cut -> gradient_is_sharded
batch_norm_is_cut -> batch_norm_is_sharded
batch_norm_backward_is_cut -> batch_norm_backward_is_sharded
convolution_is_cut -> convolution_is_sharded
convolution_backward_is_cut -> convolution_backward_is_sharded
layer_norm_is_cut -> layer_norm_is_sharded
layer_norm_backward_is_cut -> layer_norm_backward_is_sharded
has_one_plain_cut -> has_one_plain_shard
cut_like_terms -> sharded_like_terms
cut_alike -> sharded_alike
check_same_cuts -> check_same_shards
has_dim_cut_to_one -> has_dim_split_to_one
mesh_dims_in_cut_order -> mesh_dims_in_order
scatter_cut -> scatter_slices
cut_dims_ -> sharded_dims_              | extent.*
DimCut -> DimSplit
RangeCut -> RangeSplit
NllCut -> NllSplit
nll_cuts -> nll_splits
cut -> split                            | view_reshape.* view_slice.* softmax_loss.*
cuts -> splits                          | softmax_loss.*
cut -> shard                            | choose.*
cut -> sharded                          | linalg.* normalization.* optimizer.* pointwise.* families/
drop_cuts -> drop_shards
has_cuts -> has_shards
is_cut -> is_sharded                    | view_layout.* view_slice.* view.cpp
cut_index -> sharded_index
cut_dims -> sharded_dims                | attention.*
try_cut -> try_shard                    | choose.*
straighten_cuts -> straighten_shards
size_of_cut -> size_of_shard
cut_lengths -> split_lengths
cuts_in_order -> splits_in_order
cut_pieces -> split_pieces
can_be_cut_by_inputs -> can_be_sharded_by_inputs
cut -> shard                            | style_actions.*
cut_bias -> shard_bias
cut_heads -> shard_heads
cut -> target                           | mesh_ops.*
cut_again -> sharded_again
cut_like -> sharded_like                | run_on_mesh.*
recut_like -> resharded_like
recut -> resharded_state
agreed_recut -> agreed_resharded_state
cut -> sharded                          | shard_parameter.*
check_cut -> check_runs                 | check_call.*
cut -> run_of                           | process_call.* process_transfer.*
cuts -> runs                            | process_transfer.*
cut -> truncated                        | call.* flight_recorder.*
cut -> line_end                         | text_columns.*

# 14. The order of a placement.
turn -> order                           | layout.* notation.* xla_axes.* redistribute_plan.* states.* transitions.*
turn -> position                        | view_reshape.*
turns -> ordered                        | layout.*
turned -> ordered                       | view_reshape.*
by_turn -> by_order                     | !tests/
without_turn -> without_order
set_turns -> set_orders
drop_turns -> drop_orders
add_turned_order -> add_negated_extremes
turns -> negates                        | forms.*

# 15. Partial values.
to_addend -> to_partial
keep_addends -> keep_unreduced
addends_dim -> unreduced_dim
addend_of -> partial_value_of           | execute.* movement.*
is_addend -> is_unreduced
has_addends -> has_partials             | !tests/
is_sum_of_addends -> is_partial_sum
without_other_addends -> without_other_partials
add_sum_of_addends -> add_sum_of_partials
cost_of_addends -> cost_of_partials
addend_count -> partial_count
addends_ -> unreduced_                  | xla_hlo_read.*
addend -> partial                       | xla_hlo_read.*
addends -> partials                     | xla_hlo_print.* xla_hlo_read.* prepared_plan.* execute.* process_transfer.* local_gradient.* holders.*
addends -> unreduced                    | data_parallel.*
addends -> partial_placements           | convolution.cpp nll.*
addend -> wrap_partial                  | convolution.cpp
addend -> partial                       | movement.*

# 16. Unsharded values. whole(shape), mesh.whole() and RuleTable::whole() are public.
is_whole -> is_unsharded                | !extent.* !tests/
is_whole -> covers_dim                  | extent.*
whole_ -> unsharded_                    | wrapper.* wrapper_template.*
strides_of_whole -> strides_of_unsharded
lies_in_whole_copy -> lies_in_replicated_copy
lies_in_whole_shard -> lies_in_unsharded_shard
rows_are_whole -> rows_are_unsharded
whole_rows -> unsharded_rows
reads_whole -> reads_replicated
run_on_whole_values -> run_replicated
write_whole -> write_replicated
whole_weight -> replicated_weight
kWhole -> kFullBlock
whole -> unsharded                      | convolution.* cut_call.* foreach.* nll.* norms.* running_statistics.* softmax.* factories.* local_views.* local_kernel.* parallelize_module.* replication_check.* run_decided.* sharded_impl.* smoothed_loss.* special_ops.* sample_ops.*
whole_sum -> sum_over_mesh
whole_on -> unsharded_on
WholeGroup -> ReadyGroup
whole_group -> ready_group
whole -> ready                          | c10d_network.*
whole -> full                           | check_call.*
whole_role -> full_role
whole_size -> full_size                 | mesh_view.*
whole_length -> full_length             | layout_owner.*
whole -> exact                          | view_reshape.* remote_device.*

# 17. Settle: wait, reduce, commit, drop partials.
settle -> wait                          | execute.* autograd.* movement.* sharded_impl.* redistribute.* wrap.*
is_settled -> is_complete               | execute.* autograd.* redistribute.*
settled_ -> complete_                   | execute.*
settle -> commit                        | choose.*
settle -> reduce_to                     | cut_call.*
settled -> without_partials             | decompositions/ smoothed_loss.*
settled -> buffers_are_free             | engine/
drop_settled -> drop_ended
unsettled -> ending_calls               | process_world.*
Unsettled -> EndingCalls                | process_world.*

# 18. The meta of a tensor, with and without waiting for its data.
moving_meta_of -> meta_nowait
meta_of -> meta_ready

# 19. Copies that views point into.
Copy -> ViewCopy                        | sharded_impl.* strided_views.* decision.* run_direct.* run_decided.* view_copies.* moves.* wrap.*
ShardCell -> ViewSource
cell_of -> view_source_of               | sharded_impl.* view_copies.* wrap.*
cell -> view_source                     | sharded_impl.* view_copies.* wrap.* decision.* moves.* dry_run.*
Shown -> ViewOf

# 20. Strategies. The ways of a cache (kWays) are a cache's own word.
Way -> Strategy                         | !tests:sharded_training_test.cpp
way -> strategy                         | tests:decide_calls.cpp decision.* dry_run.* explain.* dispatch.* run_decided.* run_outside.* kernels.*
has_own_way -> has_custom_kernel
kByOthers -> kDecomposed
is_expressed_by_others -> is_decomposed

# 21. Custom kernels.
SpecialKernel -> CustomKernel
SpecialMoves -> CustomKernelMoves
kSpecial -> kCustomKernel
special_moves -> custom_kernel_moves
special_outside -> custom_kernel_off_mesh
find_special -> find_custom_kernel
special_decision -> custom_kernel_decision
special -> custom_kernel                | tests:decide_calls.cpp tests:check_operator.cpp dispatch.* random/ typed_call.* dry_run.* op_traits.* operators.* list_operators.* special_ops.* kernels.*

# 22. How a decision runs.
run_decided -> run_decision
run_direct -> run_cached
run_outside -> run_off_mesh
run_slowly -> run_uncached
find_slowly -> find_uncached
as_strided_outside -> as_strided_off_mesh
spec_outside -> spec_off_mesh

# 23 to 25.
RuledCall -> RuleOperands
ruled -> rule_operands                  | decision.*
Lent -> Borrowed

# 26 to 28. Arguments, results, leaves.
stand_in -> local_argument
StandIn -> OffMeshArgument
bring_arguments -> redistribute_inputs
bring_back -> write_back
bring_back_plain -> write_back_plain
fresh_local -> refreshed_shard
fresh -> refreshed                      | decision.* moves.* dry_run.* special_ops.* strided_views.* table.cpp
watch_leaf -> install_leaf_hook
watch_leaves -> install_leaf_hooks
watch -> install_hook                   | typed_call.*

# 29. Redistribution of shards. Steps of a plan's search are transitions.
move_shard -> redistribute_shard
moved -> redistribute_local             | autograd.* redistribute.*
moved -> redistribute_gradient          | leaf_gradient.*
moved -> redistribute_value             | sharded_impl.* view_copies.*
Move -> Transition                      | search.* transitions.*
Moves -> Transitions                    | transitions.*
moves_from -> transitions_from
moves_ -> transitions_                  | search.* transitions.*
moves -> transitions                    | transitions.*

# 30. Cached blocks of CPU memory.
empty_block -> empty_cached
Blocks -> CpuBlockCache                 | blocks.*

# 31. Plain: not sharded.
add_plain -> add_pointwise_names        | pointwise.*
kPlainPointwise -> kPointwiseNames
PlainDraws -> UnshardedRandom
kPlainRandomKey -> kUnshardedRandomKey
register_plain_random -> register_unsharded_random
plain_kernel -> unsharded_kernel        | plain.*
plain_ -> unsharded_                    | plain.* random_call.*

# 32. Offsets of random numbers.
Draw -> RandomOffset
take_draw -> next_offset
draw -> offset                          | random_counters.* words.* random_fill.* table.cpp
drawn_placements -> random_placements
drawn_ -> random_                       | run_outside.*
OperationDraws -> RandomOperation
draws_of_call -> random_operation
luck -> uniforms

# 33. Encoding.
Choices -> EnumCodec                    | sharded_tensor/
choices -> codec                        | choices.* fields.* text_fields.* byte_fields.* metadata.cpp
FieldWriter -> Encoder
FieldReader -> Decoder
ByteFieldWriter -> ByteEncoder
ByteFieldReader -> ByteDecoder
TextFieldWriter -> TextEncoder
TextFieldReader -> TextDecoder
write_fields -> encode_value

# 34 and 35.
holders_text -> replica_groups_text
for_each_holder -> for_each_tensor_member
mesh_of -> infer_mesh                   | sharded_tensor/
made() -> create_published              | sharded_tensor/ !local_shards.*
move_shards -> exchange_shards
MoveBackward -> ExchangeBackward
Given -> ArgumentReader                 | library_ops.*
LibraryOp -> BuiltinOp
find_library_op -> find_builtin_op
run_library -> run_builtin

# 36 to 38. The command.
TorchPart -> TorchBackend
load_torch_part -> load_torch_backend
kTorchPartSymbol -> kTorchBackendSymbol
TorchPartFunction -> TorchBackendFunction
tessera_cli_torch_part -> tessera_cli_torch_backend
look() -> poll                          | run_job.* run_processes.*
last_words -> final_report
milliseconds_to_look -> milliseconds_to_poll
kLookMilliseconds -> kPollMilliseconds
hear() -> read_events                   | run_mpi.* run_processes.*
hear_mpirun -> read_mpirun_events
look -> poll                            | store_news.* failed_ranks.* mpi_network.*
next_look_ -> next_poll_
look_at_processes -> poll_processes
bury_known_processes -> mark_known_processes_dead
say_gone -> mark_dead
others_are_gone -> others_are_dead
spoken_name -> command_name
take_program -> split_at_dashes
become_job -> exec_job
"""

# Replaced literally, in code, strings and prose. A line break in a comment does
# not hide a title.
TEXTS = {
    "Note [Spare parts]": "Note [Object pools]",
    "turn(s, other) > turn(s, m)": "order(s, other) > order(s, m)",
    "detail::made(": "detail::create_published(",
    '"_network")': '"_transport")',
    "tessera_NAME_network": "tessera_NAME_transport",
    '"tessera_cli_torch_part"': '"tessera_cli_torch_backend"',
}

IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
TOKEN = re.compile(
    r"^[ \t]*\#[ \t]*include[^\n]*"
    r"|\b(?:TYPED_)?TEST(?:_F|_P)?\s*\([^)]*\)"
    r'|(?P<comment>//(?:\\\n|[^\n])*|/\*.*?\*/)'
    r'|R"(?P<raw>\w*)\(.*?\)(?P=raw)"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|\d[\w.']*"
    r"|'(?:\\.|[^'\\\n])*'"
    r"|(?P<word>[A-Za-z_]\w*)", re.DOTALL | re.MULTILINE)
ENGLISH = re.compile(r"[a-z]+|[A-Z][a-z]+")
FILE_SUFFIX = re.compile(r"\.(h|cpp|cu|cuh|py|md|txt|so)\b|[/-]")


class Row(NamedTuple):
    old: str
    new: str
    files: tuple  # patterns; none: everywhere
    excluded: tuple
    unless: str


def parse_rows(text):
    rows = []
    for line in text.splitlines():
        line = line.split("#")[0].strip()
        if not line:
            continue
        names, _, where = line.partition("|")
        old, new = (name.strip() for name in names.split("->"))
        unless = re.search(r"\bunless (\w+)", where)
        patterns = re.sub(r"\bunless \w+", "", where).split()
        rows.append(Row(
            old, new, tuple(p for p in patterns if p[0] != "!"),
            tuple(p[1:] for p in patterns if p[0] == "!"),
            unless[1] if unless else ""))
    return rows


def matches(pattern, path):
    """Tells whether a pattern of a row means the file at `path`."""
    parts = path.split("/")
    if pattern.startswith("tests:"):
        return parts[0] == "tests" and parts[-1] == pattern[6:]
    if parts[0] == "tests":
        return pattern == "tests/"
    if pattern.endswith("/"):
        return pattern[:-1] in parts[:-1] or any(
            matches(p, path) for p in FOLDERS.get(pattern, ()))
    if "/" in pattern:
        return fnmatch.fnmatch("/" + path, "*/" + pattern)
    stem, dot, suffix = pattern.partition(".")
    names = [name + dot + suffix
             for name in (stem, *FILES.get(stem, "").split())]
    return any(fnmatch.fnmatch(parts[-1], name) for name in names)


def rows_of(rows, path, text):
    """Returns {old: new} for one file; the first row of a name that fits counts."""
    table = {}
    words = set(IDENTIFIER.findall(text))
    for row in rows:
        if row.old.removesuffix("()") not in words or row.old in table:
            continue
        if row.files and not any(matches(p, path) for p in row.files):
            continue
        if any(matches(p, path) for p in row.excluded):
            continue
        if row.unless and row.unless in words:
            continue
        table[row.old] = row.new
    return table


def name_in(table, word, after):
    """Returns `word()` where the table has a row for it as a function."""
    return f"{word}()" if after[:1] == "(" and f"{word}()" in table else word


def rename_prose(text, table, count):
    """Renames in a comment or a page: English words only where they look like code."""
    def replaced(match):
        word = match[0]
        before = text[max(match.start() - 2, 0):match.start()]
        after = text[match.end():match.end() + 8]
        name = name_in(table, word, after)
        if name not in table:
            return word
        if FILE_SUFFIX.match(after) or before[-1:] in ("/", "-"):
            return word
        if ENGLISH.fullmatch(word):
            quoted = before[-1:] == "`" and after[:1] == "`"
            if not (quoted or before == "::" or after[:1] == "(" or
                    after[:2] == "::"):
                return word
        count[name] += 1
        return table[name]

    return IDENTIFIER.sub(replaced, text)


def rename_code(text, table, count):
    def replaced(match):
        if match["comment"] is not None:
            return rename_prose(match[0], table, count)
        if match["word"] is None:
            return match[0]
        name = name_in(table, match[0], text[match.end():match.end() + 1])
        if name not in table:
            return match[0]
        count[name] += 1
        return table[name]

    return TOKEN.sub(replaced, text)


def rename_texts(text, count):
    for old, new in TEXTS.items():
        pattern = r"(?:\s+(?://+\s*|#\s*|\*\s*)?)".join(
            re.escape(part) for part in old.split(" "))
        text, times = re.subn(pattern, lambda m: _in_lines(m[0], old, new), text)
        count[old] += times
    return text


def _in_lines(found, old, new):
    """Returns `new` broken into lines where `found` was."""
    gaps = re.findall(r"\s+(?://+\s*|#\s*|\*\s*)?", found)
    words = new.split(" ")
    if len(words) != len(gaps) + 1:
        return new
    return "".join(w + g for w, g in zip(words, [*gaps, ""]))


def rename_file(rows, path, text):
    """Returns the new text of a file and how often each name was replaced."""
    count = collections.Counter()
    table = rows_of(rows, path, text)
    if table:
        code = path.endswith(CODE)
        text = (rename_code if code else rename_prose)(text, table, count)
    return rename_texts(text, count), table, +count


def code_words(text):
    return {m["word"] for m in TOKEN.finditer(text) if m["word"]}


def list_files(root):
    names = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard",
         *AREAS], cwd=root, capture_output=True, text=True,
        check=True).stdout.splitlines()
    return [n for n in names
            if n.endswith(CODE + PROSE) and not n.endswith(OWN_TESTS) and
            (root / n).is_file()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parents[2])
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--collisions", action="store_true")
    arguments = parser.parse_args()
    rows, changed, total = parse_rows(ROWS), 0, collections.Counter()
    for name in list_files(arguments.root):
        path = arguments.root / name
        text = path.read_text()
        result, table, count = rename_file(rows, name, text)
        if arguments.collisions:
            taken = code_words(text) if name.endswith(CODE) else set()
            for old, new in table.items():
                if new in taken:
                    print(f"{name}: {old} -> {new}: {new} is used there")
            continue
        if result == text:
            continue
        again = rename_file(rows, name, result)[0]
        if again != result:
            raise SystemExit(f"{name}: a second run would change it again")
        changed += 1
        total += count
        print(f"{name}: " + ", ".join(
            f"{old} -> {table.get(old, TEXTS.get(old))} ({times})"
            for old, times in sorted(count.items())))
        if not arguments.dry_run:
            path.write_text(result)
    print(f"rename_words: {changed} files, {sum(total.values())} identifiers")
    return 0


if __name__ == "__main__":
    sys.exit(main())

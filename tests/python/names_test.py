"""Every public name of C++ (docs/reference/keywords.md) is in the package, or on the list
below with the reason why it is not."""
import ast
import pathlib
import re

import pytest
import tessera

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = pathlib.Path(tessera.__file__).parent
OPTIONS = "options are keyword arguments"
WORDS = "enumerators are words"


def read_names():
    page = (ROOT / "docs/reference/keywords.md").read_text()
    return re.findall(r"^\| `([^`]+)`", page, re.M)


def signatures():
    """{function: names of its arguments}, those of a class for its constructor."""
    found = {}
    for prefix, file in (("", "__init__"), ("checkpoint::", "checkpoint"),
                         ("sharded_tensor::", "sharded_tensor")):
        for node in ast.parse((PACKAGE / f"{file}.pyi").read_text()).body:
            functions = [node] if isinstance(node, ast.FunctionDef) else [
                m for m in getattr(node, "body", []) if getattr(m, "name", "") == "__init__"]
            for function in functions:
                arguments = function.args
                found.setdefault(prefix + node.name, set()).update(
                    a.arg for a in arguments.posonlyargs + arguments.args
                    + arguments.kwonlyargs)
    return found


# Whose keyword arguments the members of an options struct are.
OPTIONS_OF = {
    "ActivationCheckpointOptions": "activation_checkpoint", "ClipOptions": "clip_grad_norm",
    "DataParallelOptions": "DataParallel", "DistributeOptions": "distribute_tensor",
    "FromLocalOptions": "from_local", "FullyShardOptions": "fully_shard",
    "MixedPrecisionPolicy": "fully_shard", "InitOptions": "init",
    "LocalMapOptions": "local_map", "LossScalerOptions": "LossScaler",
    "ParallelizeOptions": "parallelize_module", "RedistributeOptions": "redistribute",
    "ReplicaCheckOptions": "check_replicas", "StrictOptions": "StrictMode",
    "ToLocalOptions": "to_local", "VisualizeOptions": "visualize_sharding",
    "checkpoint::LoadOptions": "checkpoint::load",
    "checkpoint::SaveOptions": "checkpoint::save",
    "sharded_tensor::EmbeddingBagOptions": "sharded_tensor::embedding_bag",
    "sharded_tensor::EmbeddingOptions": "sharded_tensor::embedding",
    "sharded_tensor::LikeOptions": "sharded_tensor::empty_like",
    "sharded_tensor::ShardedTensorOptions": "sharded_tensor::zeros"}

# Words of C++ that Python reserves, or has its own for.
RENAMED = {
    "CommLogEntry::from": "source", "CommLogEntry::to": "target", "Step::from": "source",
    "Step::to": "target", "Transfer::from": "source", "Transfer::to": "target",
    "RedistributeOptions::async": "async_op", "BoxLayout::from": "from_layout",
    "DataParallel::Accumulate": "accumulate", "FullyShard::Accumulate": "accumulate",
    "FullyShardReport::Group": "FullyShardGroup", "Ema::Swap": "swap",
    "LossScaler::state": "state_dict", "LossScaler::set_state": "load_state_dict",
    "bytes_on": "Step::bytes_on", "bytes_on_rank": "Step::bytes_on_rank",
    "Layout::hash": "__hash__", "DeviceMesh::hash": "__hash__",
    "FillOptions::mode": "local", "World::set_deadline": "deadline",
    "predicted_times": "CommLog::predicted_times"}

# Names, each with all its members, by the reason why Python has none.
REASONS = {
    "a word: \"sum\", \"threads\", \"all_gather\", ...; local=True for InitMode":
        "Engine FlightState FullyShard::Accumulate::Keep FullyShardOptions::mp_policy "
        "Placement::Kind ReduceOp StepKind checkpoint::Format "
        "sharded_tensor::BagMode sharded_tensor::FillOptions sharded_tensor::InitMode "
        "sharded_tensor::MemFormatEncoding sharded_tensor::decode_memory_format "
        "sharded_tensor::encode_memory_format",
    "a type of Python's own stands for it: list, dict, tuple, Callable, bytes, set of pairs":
        "BoxLayout::Tile CheckpointFn CommLogSum FallbackCount Layout::Run Layout::Runs "
        "LocalFn LossScalerState ParallelPlan PartitionFn Placements SpecPtr TensorsFn TypedLayout "
        "checkpoint::Bytes checkpoint::Progress::bytes checkpoint::Progress::total checkpoint::StateDict "
        "checkpoint::StateValue sharded_tensor::NamedParams sharded_tensor::PlanEntry "
        "sharded_tensor::ShardingSpecPtr sharded_tensor::Value total_length wrap_dim",
    "str(), repr(), print(), hash() and json of Python do it":
        "CommLogEntry::text describe dims_of dtype_name hash_value print ranks_to_string "
        "shape_to_string to_json checkpoint::describe checkpoint::to_string "
        "sharded_tensor::to_string",
    "chunk_list() returns boxes": "ChunkStorageMetadata",
    "a keyword argument: async_op=True, counts=...":
        "Communicator::all_gather_async Communicator::all_gather_v "
        "Communicator::all_reduce_async Communicator::all_to_all_async "
        "Communicator::all_to_all_v Communicator::broadcast_async "
        "Communicator::gather_async Communicator::gather_v Communicator::recv_async "
        "Communicator::reduce_scatter_async Communicator::reduce_scatter_v "
        "Communicator::scatter_async Communicator::scatter_v Communicator::send_async "
        "Communicator::Work",
    "an argument of run_simulated()": "SimulatedRank",
    "flight_record() returns its lines": "FlightEntry",
    "one line per operator from rules().list()": "RuleInfo",
    "a mesh of Python is a DeviceMesh, or the notation: \"mesh(dp=2, tp=4)\"":
        "MeshShape parse_mesh DeviceMesh::mesh_shape",
    "attributes that every style object has, set by its constructor":
        "ColwiseParallel::input_layouts ColwiseParallel::output_layouts "
        "ParameterParallel::input_layouts ParameterParallel::output_layouts "
        "ParameterParallel::placement PrepareModuleInput::desired_input_layouts "
        "PrepareModuleInput::input_layouts PrepareModuleOutput::desired_output_layouts "
        "PrepareModuleOutput::output_layouts RowwiseParallel::input_layouts "
        "RowwiseParallel::output_layouts SequenceParallel::sequence_dim",
    "styles are hooks in Python, by the name of their class: apply(target) of all of them, "
    "StyledModule.before() and after()":
        "ColwiseParallel::kName ParallelStyle::is_around "
        "ParallelStyle::is_for_parameters ParallelStyle::name ParameterParallel::apply "
        "ParameterParallel::kName PrepareModuleInput::apply_around "
        "PrepareModuleInput::kName PrepareModuleOutput::apply_around "
        "PrepareModuleOutput::kName RowwiseParallel::kName SequenceParallel::kName "
        "StyledModule::prepare_input StyledModule::prepare_output StyledParameter "
        "StyleTarget",
    "modules of Python have hooks, so there is no object around a module; "
    "distribute_module() and shard_module() return it":
        "DistributedModule distribute_parameters sharded_tensor::ModuleHandle "
        "sharded_tensor::Replacement sharded_tensor::ShardedModule",
    "torch.optim takes sharded parameters as they are; tessera.checkpoint keeps its state":
        "sharded_tensor::ShardedOptimizer sharded_tensor::load_optimizer "
        "sharded_tensor::named_params_with_sharded_tensor "
        "sharded_tensor::optimizer_tensors sharded_tensor::save_optimizer",
    "for members of C++ classes that are no parameters; Python's modules list theirs":
        "sharded_tensor::ShardedTensorHolder sharded_tensor::load_state_dict "
        "sharded_tensor::state_dict",
    "rules by functions of C++ see schemas and operands; Python adds rows, factors and the "
    "other forms of text":
        "Operand Rows RowsFn RuleCall RuleGroup::channels_last RuleGroup::contiguous "
        "RuleGroup::instead RuleGroup::like_operands RuleGroup::local RuleTable::state "
        "RuleTable::view ViewFn ViewLayout ViewResult",
    "handlers, specs and loggers of Python would outlive the interpreter in tables of the "
    "process; functions of Python call dispatch() instead":
        "sharded_tensor::Handler sharded_tensor::Logger sharded_tensor::custom_sharded_op "
        "sharded_tensor::custom_sharding_spec_op sharded_tensor::find_sharded_tensor "
        "sharded_tensor::get_or_create_logger sharded_tensor::has_custom_op "
        "sharded_tensor::register_sharding_spec sharded_tensor::ShardingSpec::clone "
        "sharded_tensor::ShardingSpec::encode sharded_tensor::ShardingSpec::equals "
        "sharded_tensor::ShardingSpec::name sharded_tensor::dispatch_one",
    "KeyError, AttributeError and OSError of Python":
        "checkpoint::FileError sharded_tensor::AttributeError sharded_tensor::KeyError",
    "for hosts of the library, as the package itself is one":
        "InstallPacker PackedTensor TensorPacker WaitHooks set_install_packer "
        "set_wait_hooks checkpoint::build_state World::random_counters",
    "a part of the library's own objects: specs are made by making tensors":
        "CommLogEntry::dims DTensorSpec::contiguous DTensorSpec::live_count "
        "DTensorSpec::make DTensorSpec::with_dtype DTensorSpec::with_placements "
        "DTensorSpec::with_shape Placement::begins Placement::resolved "
        "VisualizeOptions::shortened_note sharded_tensor::ShardedTensor::graph_anchor "
        "sharded_tensor::ShardedTensor::state",
    "a base class: ShardedTensor has all of it":
        "sharded_tensor::ShardedTensorBase sharded_tensor::PlacementSpec",
    "sharded tensors of Python are strided and contiguous, in the group of their model":
        "sharded_tensor::LikeOptions::process_group "
        "sharded_tensor::ShardedTensorOptions::layout "
        "sharded_tensor::ShardedTensorOptions::memory_format",
}
NOT_IN_PYTHON = {name: reason for reason, names in REASONS.items()
                 for name in names.split()}


def look_up(path):
    """Finds a name: an attribute of the package, of a class, or a keyword argument."""
    where, rest = tessera, path
    if path.split("::")[0] in ("checkpoint", "sharded_tensor"):
        where = getattr(tessera, path.split("::")[0])
        rest = path.split("::", 1)[1]
    for part in rest.split("::"):
        found = getattr(where, part, None)
        if found is None:
            found = getattr(where, "__annotations__", {}).get(part)
        if found is None:
            return False
        where = found
    return True


def has(path, arguments):
    if look_up(path):
        return True
    owner, _, member = path.rpartition("::")
    renamed = RENAMED.get(path)
    if renamed and (look_up(f"{owner}::{renamed}") or look_up(renamed)):
        return True
    for type_of, other in RENAMED.items():  # a member of a type with another name
        if path.startswith(type_of + "::") and look_up(
                path.replace(type_of, other, 1)):
            return True
    if path in OPTIONS_OF:
        return True
    if owner in OPTIONS_OF:
        return (renamed or member) in arguments[OPTIONS_OF[owner]]
    return False


def listed(path):
    return any(path == name or path.startswith(name + "::") for name in NOT_IN_PYTHON)


def test_every_name_is_there_or_listed_with_a_reason():
    arguments = signatures()
    names = read_names()
    assert len(names) > 900
    missing = [n for n in names if not has(n, arguments) and not listed(n)]
    assert missing == []
    there = [n for n in names if n in NOT_IN_PYTHON and has(n, arguments)]
    assert there == [], "listed, but there"
    stale = [n for n in NOT_IN_PYTHON
             if not any(m == n or m.startswith(n + "::") for m in names)]
    assert stale == [], "listed, but C++ has no such name"
    assert all(len(reason) > 10 for reason in NOT_IN_PYTHON.values())


@pytest.mark.parametrize("broken", ["Layout::nothing", "ClipOptions::nothing", "nothing"])
def test_a_name_that_is_not_there_is_found_missing(broken):
    assert not has(broken, signatures())

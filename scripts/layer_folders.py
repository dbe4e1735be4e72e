"""The order inside a layer, which check_layers.py enforces.

- A folder sees only the folders before it in its list (FOLDERS).
- Units do not include each other in a circle. x.h and x.cpp of one folder are one
  unit; a public header is one by itself, in the folder that has a source of its name
  or that PUBLIC names.
- A folder has at most MOST_FILES files.
- What a header x.h declares is defined in x.cpp, or in x_part.cpp where one file
  would be too long; ELSEWHERE lists what is not, and why.
- No type is defined twice in one namespace.
- `using namespace tessera` brings what users need: types whose names every program
  has some of its own (COMMON) are in the detail namespace of their layer, and the
  class that users meet them with has an alias, as Communicator::Work.
"""
import collections
import fnmatch
import pathlib

import cpp_units

MOST_FILES = 25

# layer: its folders; each sees itself and those before it. "." is the layer's own.
FOLDERS = {
    "base": ["."],
    "io": ["files", "checksum", "model", "commit", "tessera_format", "safetensors",
           "dcp", "."],
    "layout": [".", "boxes", "replicas", "xla"],
    "plan": ["transfer", ".", "search"],
    "rules": [".", "families"],
    "comm": ["call", "log", "engine", "engine/threads", "engine/process",
             "engine/mpi", "engine/c10d/store", "engine/c10d", "engine/simulated",
             "."],
    "tensor": ["state", "impl", "move", "call", "checks", "run",
               "decompositions", "decompositions/norm", "decompositions/loss",
               "decompositions/images", "decompositions/other", "random/philox", "random/fill", "random/ops",
               "deferred", "autograd", "api", "uses", "fast", "inspect", "dispatch"],
    "modules": ["."],
    "parallel": [".", "fully_shard", "styles", "recompute"],
    "sharded_tensor": ["spec", "format", "tensor", "module", "ops"],
    "checkpoint": ["write", ".", "state", "calls"],
}
# The folder of public headers without a source of their name, or whose types are
# used below the source that defines their functions.
PUBLIC = {
    "comm": {"communicator.h": "call", "world.h": "call", "device_mesh.h": "call",
             "comm_log.h": "call", "flight_recorder.h": "call"},
    "layout": {"box.h": ".", "xla.h": "xla"},
    "tensor": {"xla.h": "impl", "machine_model.h": "move", "dtensor.h": "autograd",
               "operators.h": "inspect", "visualize_sharding.h": "inspect"},
    "modules": {"module_call.h": "."},
    "parallel": {"tensor_packer.h": "recompute"},
    "checkpoint": {"checkpoint.h": "write", "state_dict.h": "write",
                   "file_error.h": "write"},
    "sharded_tensor": {"errors.h": "spec", "ops.h": "ops", "shard_module.h": "module",
                       "sharded_module.h": "module", "call_plan.h": "module"},
}
# Folders whose files are not counted, and why.
UNCOUNTED = {
    "src/rules/families": "a list of like files",
    "tests/golden": "recorded outputs",
}

FAMILY = "one file per family, which adds its operators"
HOOK = "asked for below, known above: defined where all that it needs is seen"
PARTS = "a public header of one subject; a source for each of its parts"
# header: (the sources that may define what it declares, why)
ELSEWHERE = {
    "src/rules/all_rules.h": ("src/rules/families/*", FAMILY),
    "src/tensor/random/ops/table.h": ("src/tensor/random/ops/*_ops.cpp", FAMILY),
    "src/sharded_tensor/ops/builtin_ops.h": ("src/sharded_tensor/ops/*", FAMILY),
    "include/tessera/sharded_tensor/ops.h": ("src/sharded_tensor/ops/*", FAMILY),
    "include/tessera/parallel/tensor_packer.h":
        ("src/parallel/recompute/packer_scope.cpp", "what installs packers"),
    "include/tessera/parallel/parallelize_module.h":
        ("src/parallel/styles/*", "a file for each style"),

    "src/comm/this_rank.h": ("src/comm/world.cpp", HOOK),
    "src/tensor/state/late_operators.h":
        ("src/tensor/dispatch/registration.cpp", HOOK),
    "src/tensor/state/thread_state.h": ("src/tensor/fast/thread_dispatch.cpp", HOOK),
    "src/tensor/call/op_registry.h":
        ("src/tensor/dispatch/operator_tables.cpp", HOOK),

    "include/tessera/checkpoint/checkpoint.h": ("src/checkpoint/*", PARTS),
    "include/tessera/checkpoint/state_dict.h":
        ("src/checkpoint/state/*", PARTS),
    "include/tessera/comm/world.h": ("src/comm/rank_guard.cpp", PARTS),
    "include/tessera/tensor/dtensor.h": ("src/tensor/a[pu]*/*", PARTS),
    "include/tessera/tensor/operators.h":
        ("src/tensor/inspect/list_operators.cpp", PARTS),
    "include/tessera/sharded_tensor/create.h": ("src/sharded_tensor/tensor/*", PARTS),
    "include/tessera/sharded_tensor/shard_module.h":
        ("src/sharded_tensor/module/*", PARTS),
    "include/tessera/sharded_tensor/call_plan.h":
        ("src/sharded_tensor/module/module_output.cpp", PARTS),
    "include/tessera/sharded_tensor/sharded_tensor.h":
        ("src/sharded_tensor/tensor/*", PARTS),
    "include/tessera/sharded_tensor/sharding_spec.h": ("src/sharded_tensor/*", PARTS),

    "src/comm/direct.h":
        ("src/comm/communicator.cpp", "submits calls as Communicator's functions do"),
    "src/comm/others.h":
        ("src/comm/communicator.cpp", "submits calls as Communicator's functions do"),
    "src/tensor/api/in_place.h":
        ("src/tensor/api/distribute.cpp", "shares the checks of distribute_tensor()"),
    "src/layout/mesh_root.h":
        ("src/layout/mesh_shape*", "what the sources of mesh_shape.h share"),
    "src/rules/rule_entry.h":
        ("src/rules/*", "what finds, forms and chooses rules; waits for its own folder"),
    "src/rules/families/view_layout.h":
        ("src/rules/families/view_*", "the kinds of views, a file each"),
    "src/rules/families/rows_of_dims.h":
        ("src/rules/families/concat.cpp", "waits for a source of its own"),
    "src/sharded_tensor/module/parameter_plan.h":
        ("src/sharded_tensor/module/shard_parameter.cpp",
         "what shard_parameter() and shard_module() share"),
    "src/sharded_tensor/module/tensor_members.h":
        ("src/sharded_tensor/module/state_dict.cpp",
         "waits for one walk over modules"),
    "src/sharded_tensor/spec/placement_owner.h":
        ("src/sharded_tensor/spec/process_group.cpp", "knows the names of ranks"),
    "src/sharded_tensor/tensor/state.h":
        ("src/sharded_tensor/tensor/remote.cpp", "what rank publishes of a state"),
}
# Types that are defined in two files, and why that still is so.
TWICE = {}
# Names of types that are no members of namespace tessera.
COMMON = {"Run", "Row", "Cell", "Tile", "Work", "Move", "Copy", "Entry", "Item",
          "Node", "Piece", "Place", "Part", "Block", "Range", "Table", "State",
          "Config", "Task", "Event"}


class Unit:
    """Where a file of a layer belongs; its text names it."""

    def __init__(self, path, sources):
        parts = path.split("/")
        self.is_public = parts[0] == "include"
        self.layer = parts[2] if self.is_public else parts[1]
        self.stem = pathlib.PurePosixPath(path).stem
        if self.is_public:
            named = PUBLIC.get(self.layer, {}).get("/".join(parts[3:]))
            self.folder = named or sources.get((self.layer, self.stem))
            self.text = path
        else:
            self.folder = "/".join(parts[2:-1]) or "."
            self.text = "/".join([*parts[:-1], self.stem])


def read_units(files):
    """Returns {path: Unit} of the files of layers."""
    own = [path for path, file in files.items()
           if file.area in ("include", "src") and file.layer in FOLDERS
           and "_declarations/" not in path]
    sources = {}
    for path in own:
        if path.startswith("src/"):
            unit = Unit(path, {})
            sources.setdefault((unit.layer, unit.stem), unit.folder)
    return {path: Unit(path, sources) for path in own}


def check_folders(files, units):
    for path, unit in units.items():
        order = FOLDERS[unit.layer]
        if unit.is_public and unit.folder is None:
            yield (f"{path}:1: no source of {unit.layer} has this name, and PUBLIC "
                   "names no folder for it")
            continue
        if unit.folder not in order:
            yield (f"{path}:1: {unit.folder} is not a folder of {unit.layer}; FOLDERS "
                   f"lists {', '.join(order)}")
            continue
        for include in files[path].includes:
            other = units.get(include.target)
            if other is None or other.layer != unit.layer or \
                    other.folder not in order or \
                    (unit.is_public and not other.is_public):
                continue
            if order.index(other.folder) > order.index(unit.folder):
                yield (f"{path}:{include.line}: {include.text}: {unit.layer}/"
                       f"{unit.folder} may not include {other.folder}, which comes "
                       "after it in FOLDERS")


def circles(edges):
    """Returns the strongly connected parts with more than one node (Tarjan)."""
    order, low, stack, found = {}, {}, [], []

    def visit(node):
        order[node] = low[node] = len(order)
        stack.append(node)
        for other in sorted(edges[node]):
            if other not in order:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], order[other])
        if low[node] == order[node]:
            at = stack.index(node)
            part = stack[at:]
            del stack[at:]
            if len(part) > 1:
                found.append(sorted(part))

    for node in sorted(edges):
        if node not in order:
            visit(node)
    return found


def check_units(files, units):
    edges = collections.defaultdict(set)
    for path, unit in units.items():
        edges[unit.text] |= {
            units[include.target].text for include in files[path].includes
            if include.target in units and units[include.target].text != unit.text}
    for part in circles(edges):
        yield (f"{part[0]}:1: {len(part)} units include each other in a circle: "
               f"{', '.join(part)}")


def check_counts(paths):
    count = collections.Counter(path.rsplit("/", 1)[0] for path in paths)
    for folder, files in sorted(count.items()):
        counts = not any(f"{folder}/".startswith(f"{other}/") for other in UNCOUNTED)
        if files > MOST_FILES and counts:
            yield f"{folder}:1: {files} files; a folder has at most {MOST_FILES}"


def is_source_of(source, header):
    """Tells whether a source is x.cpp or x_part.cpp of a header x.h."""
    name, stem = (pathlib.PurePosixPath(path).stem for path in (source, header))
    return name == stem or name.startswith(stem + "_")


def check_definitions(root, units):
    declared, defined = [], collections.defaultdict(set)
    types = collections.defaultdict(dict)
    for path, unit in units.items():
        for entry in cpp_units.read((root / path).read_text()):
            if entry.kind == "type":
                types[entry.name].setdefault(path, entry.line)
            elif entry.kind == "declared" and path.endswith(".h"):
                declared.append((path, unit.layer, entry))
            elif entry.kind == "defined" and path.endswith(".cpp"):
                defined[unit.layer, entry.name].add(path)
    found, misplaced = set(), set()
    for path, layer, entry in declared:
        sources = defined[layer, entry.name]
        if not sources:
            continue
        found.add(path)
        if any(is_source_of(source, path) for source in sources):
            continue
        misplaced.add(path)
        allowed = ELSEWHERE.get(path, ("", ""))[0]
        if any(fnmatch.fnmatch(source, allowed) for source in sources):
            continue
        yield (f"{path}:{entry.line}: {entry.name} is defined in "
               f"{', '.join(sorted(sources))}, not in the source of this header")
    for path in sorted(ELSEWHERE.keys() & found - misplaced):
        yield f"{path}:1: ELSEWHERE excuses this header, which needs no excuse any more"
    for name, places in types.items():
        (first, line), *others = sorted(places.items())
        if name in TWICE and not others:
            yield f"{first}:{line}: TWICE excuses {name}, which is defined once"
        if others and name not in TWICE:
            yield (f"{first}:{line}: {name} is also defined in "
                   f"{', '.join(path for path, _ in others)}")
        if name.removeprefix("tessera::") in COMMON and name.startswith("tessera::"):
            yield (f"{first}:{line}: {name}: programs have types of that name; use "
                   "the detail namespace of the layer, and an alias in a class")

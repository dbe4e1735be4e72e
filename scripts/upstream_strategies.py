#!/usr/bin/env python3
"""What the installed PyTorch's DTensor does with every operator that it has a
sharding strategy for, as JSON. Needs torch; runs in one process, with a process
group that sends nothing.

    .venv/bin/python scripts/upstream_strategies.py --output upstream.json
    .venv/bin/python scripts/upstream_strategies.py --only '^aten::(mm|add)'

The strategies are asked, not read: sample calls of every operator (from torch's
own database of operators for tests, forward, backward and as optimizers make
them) go through DTensor's sharding propagation on a 1-D mesh of 2 ranks, for each
placement of the first tensor operand. The JSON:

    torch       version
    mesh        [2]
    overloads   "aten::mm": how it is registered: "single_dim", "strategy", "rule",
                "handler" (several are joined by "+")
    other       the same for operators outside aten (prims, ...)
    calls       list of
      op          "aten::add.Tensor"
      arguments   by the schema's names; a tensor is {"tensor": [4, 2], "dtype":
                  "f32"} (with "stride" when not contiguous), a dtype {"dtype":
                  "f32"}, a number that JSON lacks {"float": "inf"} or {"complex":
                  [re, im]}, another constant {"constant": "torch.strided"}
      operands    names of the tensor operands, in the order of the placements
                  below; the tensors of a list are "tensors[0]", ...
      rows        list of {given, used, out, keeps}: placements of the operands as
                  passed; as the operator ran (a difference is a redistribution);
                  of the outputs (null where an output is no tensor); and whether
                  the first operand was used as given
      errors      list of {given, error}, where propagation refused
    no_call     overloads that no sample call was found for
    no_rows     overloads with calls that all were refused

Placements are R, S(0), P(sum), SS(0,2) for a strided shard with its split factor.
Operands after the first are replicated; in further rows those of the first one's
shape are placed as it is.
"""
import argparse
import collections
import json
import logging
import re
import sys
import warnings

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor._op_schema import OpSchema
from torch.utils._pytree import tree_flatten, tree_map

from upstream_calls import Limit, SampleCalls, TooLong

RANKS = 2
SECONDS_PER_CALL = 3


def propagator():
    return DTensor._op_dispatcher.sharding_propagator


def registries():
    """Returns the dictionaries of this version, by what an entry is called here."""
    found = {
        "single_dim": getattr(propagator(), "op_single_dim_strategy_funcs", {}),
        "strategy": getattr(propagator(), "op_strategy_funcs", {}),
        "rule": getattr(propagator(), "op_to_rules", {}),
        "handler": getattr(DTensor._op_dispatcher, "_custom_op_handlers", {}),
    }
    return {kind: table for kind, table in found.items() if table}


def registered():
    """Returns {overload: "single_dim+handler"}."""
    kinds = collections.defaultdict(list)
    for kind, table in registries().items():
        for op in table:
            kinds[op].append(kind)
    return {op: "+".join(names) for op, names in kinds.items()}


def name_of(op):
    return op.name()  # "aten::add.Tensor", "aten::mm"


def text_of(placement):
    if placement is None:
        return None
    if placement.is_replicate():
        return "R"
    if type(placement).__name__ == "_StridedShard":
        return f"SS({placement.dim},{placement.split_factor})"
    if placement.is_shard():
        return f"S({placement.dim})"
    if type(placement) is Partial:
        return f"P({placement.reduce_op})"
    return f"P({type(placement).__name__})"  # the masked one of embedding


def spec_of(tensor, placement, mesh):
    meta = TensorMeta(tensor.shape, tensor.stride(), tensor.dtype)
    return DTensorSpec(mesh, (placement,), tensor_meta=meta)


def schema_of(call, placements, mesh):
    """Makes the propagator's form of a call, with placements for its tensors."""
    given = iter(placements)
    values = tree_map(
        lambda v: spec_of(v, next(given), mesh) if isinstance(v, torch.Tensor) else v,
        call.values)
    args, kwargs = [], {}
    for argument in call.op._schema.arguments:
        if argument.name not in values:
            continue
        # Positions after a gap can only be passed by name.
        gap = len(args) + len(kwargs) < list(values).index(argument.name)
        if argument.kwarg_only or kwargs or gap:
            kwargs[argument.name] = values[argument.name]
        else:
            args.append(values[argument.name])
    info = propagator().op_to_schema_info.get(call.op) or getattr(
        propagator(), "op_to_schema_info_for_single_dim_strategy", {}).get(call.op)
    return OpSchema(call.op, tuple(args), kwargs, schema_info=info)


def specs_in(schema):
    leaves, _ = tree_flatten((schema.args_schema, schema.kwargs_schema),
                             is_leaf=lambda v: isinstance(v, DTensorSpec))
    return [leaf for leaf in leaves if isinstance(leaf, DTensorSpec)]


def outputs_of(spec):
    if spec is None or isinstance(spec, DTensorSpec):
        spec = [spec]
    return [None if s is None else text_of(s.placements[0]) for s in spec]


def ask(call, placements, mesh):
    """Returns the row of one call with these placements."""
    schema = schema_of(call, placements, mesh)
    answer = propagator().propagate_op_sharding_non_cached(schema)
    used = answer.redistribute_schema if answer.needs_redistribute else None
    used = specs_in(used or schema)
    row = {
        "given": [text_of(p) for p in placements],
        "used": [text_of(spec.placements[0]) for spec in used],
        "out": outputs_of(answer.output_spec),
    }
    row["keeps"] = row["used"][:1] == row["given"][:1]
    return row


def given_placements(tensors):
    """Returns the placements to try, one list per try."""
    first = tensors[0]
    choices = [Replicate(), Partial("sum")]
    choices[1:1] = [Shard(d) for d, size in enumerate(first.shape) if size >= RANKS]
    alike = [t.shape == first.shape for t in tensors]
    tries = []
    for choice in choices:
        tries.append([choice] + [Replicate()] * (len(tensors) - 1))
        if sum(alike) > 1 and not choice.is_replicate():
            tries.append([choice if same else Replicate() for same in alike])
    return tries


def rows_of(call, mesh):
    tensors = [tensor for _, tensor in call.tensors()]
    rows, errors = [], []
    for placements in given_placements(tensors):
        try:
            rows.append(ask(call, placements, mesh))
        except TooLong:
            raise
        except Exception as error:
            errors.append({
                "given": [text_of(p) for p in placements],
                "error": str(error).strip().split("\n")[-1][:200],
            })
    return rows, errors


def entry_of(call, mesh):
    rows, errors = rows_of(call, mesh)
    return {
        "op": name_of(call.op),
        "arguments": json.loads(call.text),
        "operands": [name for name, _ in call.tensors()],
        "rows": rows,
        "errors": errors,
    }


def collect(only, progress):
    kinds = registered()
    aten = {op: kind for op, kind in kinds.items() if op.namespace == "aten"}
    wanted = [op for op in aten if re.search(only, name_of(op))]
    mesh = init_device_mesh("cpu", (RANKS,))
    samples = SampleCalls(wanted, progress)
    entries, no_call, no_rows = [], [], []
    for op in sorted(wanted, key=name_of):
        progress(name_of(op))
        found = []
        for call in samples.of(op):
            with Limit(SECONDS_PER_CALL):
                found.append(entry_of(call, mesh))
        if not found:
            no_call.append(name_of(op))
        elif not any(entry["rows"] for entry in found):
            no_rows.append(name_of(op))
        entries += found
    return {
        "torch": torch.__version__,
        "mesh": [RANKS],
        "overloads": {name_of(op): aten[op] for op in sorted(aten, key=name_of)},
        "other": {name_of(op): kind for op, kind in kinds.items()
                  if op.namespace != "aten"},
        "calls": entries,
        "no_call": no_call,
        "no_rows": no_rows,
    }


def summary(report):
    rows = [row for call in report["calls"] for row in call["rows"]]
    shards = [row for row in rows if row["given"][0].startswith("S")]
    return (f"torch {report['torch']}: {len(report['overloads'])} overloads of aten "
            f"with a strategy, {len(report['other'])} others; "
            f"{len({call['op'] for call in report['calls']})} with sample calls; "
            f"{len(rows)} rows, {sum(row['keeps'] for row in shards)} of "
            f"{len(shards)} with a sharded first operand keep it; no call for "
            f"{len(report['no_call'])}, no rows for {len(report['no_rows'])}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--output", help="a file; standard output unless told")
    parser.add_argument("--only", default="", help="a pattern of overload names")
    parser.add_argument("--verbose", action="store_true", help="say what is at work")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)  # refused calls are in the report
    torch.set_num_threads(1)
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    say = (lambda text: print(text, file=sys.stderr)) if options.verbose else (
        lambda text: None)
    report = collect(options.only, say)
    text = json.dumps(report, indent=1)
    if options.output:
        with open(options.output, "w", encoding="utf-8") as file:
            file.write(text + "\n")
    else:
        print(text)
    print(summary(report), file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())

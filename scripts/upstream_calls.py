"""Sample calls of operators of the installed PyTorch, with small even sizes: what
torch's own database of operators and its optimizers call, and forms of those calls.
"""
import collections
import itertools
import json
import math
import signal
import sys
import types
import unittest

import torch
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

SAMPLES_PER_OPERATOR = 24  # of torch's database
CANDIDATES_PER_OVERLOAD = 60
CALLS_PER_OVERLOAD = 4
SECONDS_PER_OPERATOR = 3
# Names of sizes in torch's samples, made even.
SIZES = {"XS": 2, "S": 4, "M": 8, "L": 16}
DTYPES = {
    torch.float32: "f32", torch.float64: "f64", torch.float16: "f16",
    torch.bfloat16: "bf16", torch.int64: "i64", torch.int32: "i32",
    torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.bool: "bool",
    torch.complex64: "c64", torch.complex128: "c128",
}
# Operators that take what another one takes.
ALIASES = {
    "clip": "clamp", "clip_": "clamp_", "__lshift__": "bitwise_left_shift",
    "__rshift__": "bitwise_right_shift", "__xor__": "bitwise_xor",
    "__ilshift__": "bitwise_left_shift", "__irshift__": "bitwise_right_shift",
    "__ixor__": "bitwise_xor", "_index_put_impl_": "index_put_",
    "_index_put_impl": "index_put", "clamp_max": "clamp_min",
    "clamp_max_": "clamp_min_", "_upsample_lanczos2d_aa": "_upsample_bilinear2d_aa",
    "_upsample_bicubic2d_aa": "_upsample_bilinear2d_aa",
    "normal_functional": "normal_", "_foreach_powsum": "_foreach_norm",
}


def tensor(*shape, dtype=torch.float32):
    return torch.empty(shape, dtype=dtype, device="meta")


def hand_made():
    """Returns calls that no program for a CPU makes: {operator: arguments}."""
    heads = [tensor(2, 4, 8, 16) for _ in range(3)]
    sums = tensor(2, 4, 8)
    bias = tensor(2, 4, 8, 8)
    seed = tensor(dtype=torch.int64)
    rows, vector = tensor(2, 4, 8), tensor(8)
    channels = [tensor(4) for _ in range(4)]
    norm = [tensor(2, 4, 8, 8), *channels]
    upsample = ([8, 8], [2, 4, 4, 4], False)
    cut = [tensor(4, dtype=torch.int32), tensor(4, dtype=torch.int32)]
    return {
        "_scaled_dot_product_flash_attention": (*heads,),
        "_scaled_dot_product_efficient_attention": (*heads, bias, True),
        "_scaled_dot_product_cudnn_attention": (*heads, None, True),
        "_scaled_dot_product_flash_attention_backward": (
            heads[0], *heads, heads[0], sums, *cut, 8, 8, 0.0, False, seed, seed),
        "_scaled_dot_product_efficient_attention_backward": (
            heads[0], *heads, bias, heads[0], sums, seed, seed, 0.0,
            [True, True, True, False]),
        "_scaled_dot_product_cudnn_attention_backward": (
            heads[0], *heads, heads[0], sums, seed, seed, bias, *cut, 8, 8, 0.0,
            False),
        "_fused_rms_norm": (rows, [8], vector, 1e-5),
        "_fused_rms_norm_backward": (
            rows, rows, [8], tensor(2, 4, 1), vector, [True, True]),
        "_native_batch_norm_legit_functional": (*norm, True, 0.1, 1e-5),
        "_native_batch_norm_legit_no_training": (*norm, 0.1, 1e-5),
        "_batch_norm_with_update_functional": (*norm, 0.1, 1e-5),
        "_grouped_mm": (
            tensor(4, 8, 8, dtype=torch.bfloat16), tensor(4, 8, 8, dtype=torch.bfloat16)),
        "_amp_foreach_non_finite_check_and_unscale_": (
            [tensor(4, 4), tensor(4, 4)], tensor(1), tensor(1)),
        "_upsample_bicubic2d_aa_backward": (tensor(2, 4, 8, 8), *upsample),
        "_upsample_lanczos2d_aa_backward": (tensor(2, 4, 8, 8), *upsample),
        "native_dropout": (rows, 0.5, True),
        "native_layer_norm": (rows, [8], vector, vector, 1e-5),
        "rand_like": (rows,),
        "contiguous": (rows,),
        "is_pinned": (rows,),
        "is_same_size": (rows, rows),
        "linalg__powsum": (rows, 2, [1]),
        "embedding": (tensor(16, 8), tensor(4, 8, dtype=torch.int64)),
        "rrelu_with_noise_functional": (rows, rows),
        "view.dtype": (rows, torch.int32),
        "view": (rows, [2, 2, 2, 8]),
    }


class TooLong(Exception):
    pass


class Limit:
    """Raises TooLong in its body after some seconds."""

    def __init__(self, seconds):
        self.seconds = seconds

    def __enter__(self):
        def ring(*_):
            raise TooLong

        self.before = signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, self.seconds)

    def __exit__(self, kind, *_):
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self.before)
        return kind is TooLong


class Call:
    """A call of an overload; its tensors are kept by shape only."""

    def __init__(self, op, args, kwargs):
        names = [argument.name for argument in op._schema.arguments]
        values = dict(zip(names, args), **kwargs)
        meta = tree_map(shape_only, values)
        self.op = op
        self.values = {name: meta[name] for name in names if name in meta}
        self.text = json.dumps(
            {name: to_json(value) for name, value in self.values.items()})

    def tensors(self):
        """Returns (name, tensor) of every tensor operand."""
        for name, value in self.values.items():
            if isinstance(value, torch.Tensor):
                yield name, value
            elif isinstance(value, (list, tuple)):
                for i, item in enumerate(value):
                    if isinstance(item, torch.Tensor):
                        yield f"{name}[{i}]", item

    def score(self):
        """Orders calls: those that say most about shards come first."""
        shapes = [value.shape for _, value in self.tensors()]
        first = shapes[0]
        odd = sum(1 for shape in shapes for size in shape if size % 2 or size == 0)
        return (all(size < 2 for size in first), odd, -min(len(shapes), 5),
                abs(len(first) - 3), len(self.text))

    def kind(self):
        """Tells calls apart that may want different rows."""
        return tuple((name, value.dim()) for name, value in self.tensors())


def shape_only(value):
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(
        value.shape, value.stride(), dtype=value.dtype, device="meta")


def to_json(value):
    if isinstance(value, torch.Tensor):
        entry = {"tensor": list(value.shape),
                 "dtype": DTYPES.get(value.dtype, str(value.dtype))}
        if not value.is_contiguous():
            entry["stride"] = list(value.stride())
        return entry
    if isinstance(value, torch.dtype):
        return {"dtype": DTYPES.get(value, str(value))}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if isinstance(value, complex):
        return {"complex": [to_json(value.real), to_json(value.imag)]}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return {"constant": str(value)}


class Capture(TorchDispatchMode):
    """Keeps the calls of wanted overloads that are made while it is on."""

    def __init__(self, wanted):
        super().__init__()
        self.wanted = wanted
        self.calls = collections.defaultdict(dict)

    def __torch_dispatch__(self, op, kinds, args=(), kwargs=None):
        kwargs = kwargs or {}
        if op in self.wanted and len(self.calls[op]) < CANDIDATES_PER_OVERLOAD:
            self.keep(op, args, kwargs)
        return op(*args, **kwargs)

    def keep(self, op, args, kwargs):
        leaves = [v for v in tree_leaves((args, kwargs)) if isinstance(v, torch.Tensor)]
        dense = all(v.layout == torch.strided and not v.is_quantized for v in leaves)
        if leaves and dense:
            call = Call(op, args, kwargs)
            self.calls[op].setdefault(call.text, call)


def import_operators():
    """Returns torch's database of operators, its sizes made small and even."""
    try:
        import expecttest  # noqa: F401
    except ImportError:
        # The database needs no more of it than the name of this class.
        stand_in = types.ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase
        stand_in.assert_expected_inline = None
        sys.modules["expecttest"] = stand_in
    from torch.testing._internal import common_methods_invocations as database

    for name, module in list(sys.modules.items()):
        if name.startswith("torch.testing._internal"):
            for size, value in SIZES.items():
                if isinstance(getattr(module, size, None), int):
                    setattr(module, size, value)
    foreach = [
        info for key, table in vars(database).items()
        if key.startswith("foreach_") and key.endswith("_op_db") for info in table
    ]
    return list(database.op_db), foreach


def dtype_for(info):
    dtypes = info.dtypes
    for dtype in (torch.float32, torch.int64, torch.bool, torch.complex64):
        if dtype in dtypes:
            return dtype
    return None


def quietly(run, *arguments):
    """Runs something that may not exist in this build."""
    try:
        run(*arguments)
    except TooLong:
        raise
    except Exception:
        pass


def run_sample(info, sample, differentiable):
    result = info.op(sample.input, *sample.args, **sample.kwargs)
    if not differentiable:
        return
    outputs = [t for t in tree_leaves(result)
               if isinstance(t, torch.Tensor) and t.requires_grad]
    if outputs:
        torch.autograd.backward(outputs, [torch.ones_like(t) for t in outputs])


def run_operator(info, capture):
    """Runs samples: with gradients, and in inference mode, where operators that
    are made of others stay whole."""
    dtype = dtype_for(info)
    if dtype is None:
        return
    differentiable = info.supports_autograd and dtype.is_floating_point
    samples = info.sample_inputs("cpu", dtype, requires_grad=differentiable)
    for sample in itertools.islice(samples, SAMPLES_PER_OPERATOR):
        with capture:
            quietly(run_sample, info, sample, differentiable)
        with torch.inference_mode(), capture:
            quietly(run_sample, info, sample, False)


def run_foreach(info, capture):
    for sample in itertools.islice(info.sample_inputs("cpu", torch.float32), 4):
        for variant in (info.method_variant, info.inplace_variant):
            with torch.no_grad(), capture:
                quietly(variant, sample.input, *sample.args)


def run_optimizer(capture, kind, options):
    weights = [torch.ones(4, 4, requires_grad=True) for _ in range(2)]
    chosen = getattr(torch.optim, kind)(weights, lr=0.1, **options)
    for _ in range(2):
        for weight in weights:
            weight.grad = torch.ones_like(weight)
        with capture:
            chosen.step()


def run_optimizers(capture):
    for kind in ("SGD", "Adam", "AdamW", "Adagrad", "RMSprop", "NAdam", "RAdam",
                 "Adamax", "Adadelta", "ASGD", "Rprop"):
        for form in ("foreach", "fused"):
            for more in ({}, {"momentum": 0.9}, {"amsgrad": True}):
                quietly(run_optimizer, capture, kind, {form: True, **more})


def siblings(op):
    """Returns the overloads of the operators that take the same: add_ for add, add
    for add_, the other overloads."""
    base = op.name().split("::")[1].split(".")[0]
    bases = [base, base.rstrip("_"), base + "_", base.removesuffix("_copy")]
    bases += [ALIASES[name] for name in bases if name in ALIASES]
    for name in dict.fromkeys(bases):
        packet = getattr(torch.ops.aten, name, None)
        for overload in packet.overloads() if packet else ():
            yield getattr(packet, overload)


def in_type(value, argument):
    """Returns a value as an argument of a sibling wants it: a number for a tensor,
    a tensor for a number; raises ValueError where there is no way."""
    wanted = str(argument.type).removeprefix("Optional[")
    wanted = wanted[:-1] if str(argument.type) != wanted else wanted
    if value is None:
        return value
    is_tensor = isinstance(value, torch.Tensor)
    if wanted in ("number", "float", "int"):
        return 2 if is_tensor else value
    if wanted == "Tensor" and not is_tensor:
        if isinstance(value, (int, float)):
            return tensor()
        raise ValueError(wanted)
    if wanted.startswith("List[") and not isinstance(value, (list, tuple)):
        raise ValueError(wanted)
    if wanted == "List[number]" and value and isinstance(value[0], torch.Tensor):
        return [2.0] * len(value)
    return value


def derived(op, call):
    """Returns the call of a sibling as one of `op`: in place, with outputs to write
    to, with a number for a tensor."""
    values = {}
    given = list(call.values.items())
    for i, argument in enumerate(op._schema.arguments):
        if argument.is_out:
            continue
        if argument.name in call.values:
            values[argument.name] = in_type(call.values[argument.name], argument)
        elif i < len(given) and not argument.has_default_value():
            values[argument.name] = in_type(given[i][1], argument)
        elif not argument.has_default_value():
            raise ValueError(argument.name)
    outs = [argument for argument in op._schema.arguments if argument.is_out]
    if outs:
        values.update(zip((out.name for out in outs), results_of(call)))
    return Call(op, (), values)


def derive(op, calls):
    for other in siblings(op):
        for call in list(calls.get(other, {}).values()) if other is not op else ():
            try:
                yield derived(op, call)
            except Exception:  # the sibling takes something else
                continue


def results_of(call):
    """Returns the shapes of a call's results."""
    def fake(value):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)

    with FakeTensorMode():
        values = tree_map(
            lambda v: fake(v) if isinstance(v, torch.Tensor) else v, call.values)
        outputs = tree_leaves(call.op(**values))
    return [shape_only(t) for t in outputs]


class SampleCalls:
    """Finds calls of the wanted overloads."""

    def __init__(self, wanted, progress):
        operators, foreach = import_operators()
        # Other forms are made of the calls of siblings, so these are kept too.
        sources = set(wanted)
        for op in wanted:
            sources.update(siblings(op))
        capture = Capture(sources)
        for name, args in hand_made().items():
            op = torch.ops.aten
            for part in name.split(".") if "." in name else (name, "default"):
                op = getattr(op, part)
            capture.keep(op, args, {})
        torch.manual_seed(0)
        for run, infos in ((run_operator, operators), (run_foreach, foreach)):
            for info in infos:
                progress(info.name)
                with Limit(SECONDS_PER_OPERATOR):
                    quietly(run, info, capture)
        run_optimizers(capture)
        self.calls = capture.calls

    def of(self, op):
        """Returns the calls that say most about shards."""
        calls = list(self.calls.get(op, {}).values())
        calls = calls or list(
            itertools.islice(derive(op, self.calls), CANDIDATES_PER_OVERLOAD))
        calls = [call for call in calls if any(True for _ in call.tensors())]
        calls.sort(key=Call.score)
        kinds = {}
        for call in calls:
            kinds.setdefault(call.kind(), call)
        chosen = list(kinds.values())[:CALLS_PER_OVERLOAD]
        rest = [call for call in calls if call not in chosen]
        return chosen + rest[:CALLS_PER_OVERLOAD - len(chosen)]

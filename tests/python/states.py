"""The state that Python and this library give each other: every dtype, odd shapes,
values of every kind, a model with its optimizer."""
import threading

import torch

DTYPES = ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64",
          "int64", "float16", "bfloat16", "float32", "float64", "complex64",
          "complex128", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2",
          "float8_e5m2fnuz", "complex32", "float8_e8m0fnu", "float4_e2m1fn_x2"]
# What safetensors has not, or the package does not load.
NOT_SAFE = {"complex32", "complex128", "float8_e8m0fnu", "float4_e2m1fn_x2"}
SHAPES = {"uneven": (7, 5), "few": (3,), "cube": (2, 3, 5), "no_dims": (),
          "empty": (0, 3), "one": (1, 1)}


DRAWING = threading.Lock()  # ranks may be threads of one process, with one generator


def bits(tensor):
    """The bytes of a plain tensor in row-major order."""
    flat = tensor.detach().contiguous().flatten()
    return bytes(flat.view(torch.uint8).tolist()) if flat.numel() else b""


def of_dtype(name, shape):
    """Elements whose bytes differ from their neighbours'."""
    dtype = getattr(torch, name)
    count = torch.Size(shape).numel()
    if name == "bool":
        return (torch.arange(count) % 3 == 0).reshape(shape)
    numbers = torch.arange(count * dtype.itemsize, dtype=torch.int64) * 37 + 11
    return (numbers % 251).to(torch.uint8).view(dtype).reshape(shape)


def tensors():
    return {"dtypes": {name: of_dtype(name, (7, 5)) for name in DTYPES},
            "shapes": [of_dtype("float32", shape) for shape in SHAPES.values()]}


def safe_tensors():
    """Those that safetensors has, in one dict."""
    return {**{name: of_dtype(name, (7, 5)) for name in DTYPES if name not in NOT_SAFE},
            **{name: of_dtype("float32", shape) for name, shape in SHAPES.items()}}


def values():
    return {"int": 7, "big": 2**62, "float": 0.1, "text": "h\u00e9\n", "none": None,
            "true": True, "bytes": bytes(range(256)), "list": [1, [2, "x", None]],
            "deep": {"er": {"lr": 0.5}}}


def training(place):
    """A model whose parameters were given to `place`, and its optimizer."""
    with DRAWING:
        torch.manual_seed(5)
        net = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(),
                                  torch.nn.Linear(5, 3)).double()
    for module in net:
        for name, parameter in [*module.named_parameters()]:
            setattr(module, name, place(parameter))
    return net, torch.optim.AdamW(net.parameters(), lr=0.25, amsgrad=True)


def map_tensors(f, state):
    if isinstance(state, dict):
        return {key: map_tensors(f, item) for key, item in state.items()}
    if isinstance(state, list):
        return [map_tensors(f, item) for item in state]
    return f(state)


def map_values(f, state):
    """Of dicts; a list is one value."""
    if isinstance(state, dict):
        return {key: map_values(f, item) for key, item in state.items()}
    return f(state)


def for_each_pair(f, name, a, b):
    """Calls f(name, a, b) for the tensors of two states of one form."""
    if isinstance(b, torch.Tensor):
        f(name, a, b)
    elif isinstance(b, (dict, list)):
        keys = b if isinstance(b, dict) else range(len(b))
        assert len(a) == len(b), name
        for key in keys:
            for_each_pair(f, f"{name}.{key}", a[key], b[key])
    else:
        assert a == b, name

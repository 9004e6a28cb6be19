"""Builds, checks and calls the kernels of this package; written by `evoforge export`, needs torch only.

A kernel runs where it was judged to be right: on a CPU with the instructions it was made for, on
contiguous inputs of exactly the recorded sizes and dtypes, outside autograd, in eval mode.
Everywhere else the PyTorch reference answers. `Kernel.why_not(*inputs)` says which one it would be.
"""

import ctypes
import dis
import functools
import hashlib
import importlib
import inspect
import os
import subprocess
import tempfile
import threading
import warnings
import weakref
from pathlib import Path

import torch
from torch.nn.modules import module as torch_module
from torch.utils import _pytree as pytree

__all__ = ["Kernel"]

_HERE = Path(__file__).resolve().parent
_DTYPES = {
    "f32": (0, torch.float32), "f64": (1, torch.float64), "f16": (2, torch.float16), "bf16": (3, torch.bfloat16),
    "i8": (4, torch.int8), "u8": (5, torch.uint8), "i16": (6, torch.int16), "i32": (7, torch.int32),
    "i64": (8, torch.int64), "bool": (9, torch.bool),
}  # fmt: skip
_PLAIN = (torch.Tensor, torch.nn.Parameter, getattr(torch.nn, "Buffer", torch.nn.Parameter))
_ALIGN = 64
_NOTHING_PACKED = None, None, None
# What torch itself keeps in a module; of that, weights, parts and hooks are looked at each for itself.
_BOOKS = {*vars(torch.nn.Module()), "_compiled_call_impl"}
_EVERYWHERE = (torch_module._global_forward_pre_hooks, torch_module._global_forward_hooks)
_ASK_FOR_TILES = (158, 0x1023, 18)  # arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
# How far the first call may be from the reference before the kernel is dropped: a check of this
# machine and compiler, much wider than the tolerance the kernel was judged by.
_FIRST_CALL = {torch.float64: 1e-6, torch.float32: 2e-3, torch.float16: 2e-2, torch.bfloat16: 5e-2}
_DOUBTS = 3  # calls that have to differ: of constant inputs, or of ties, one may that is right


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("size", ctypes.c_int64 * 8), ("stride", ctypes.c_int64 * 8),
        ("rank", ctypes.c_int32), ("dtype", ctypes.c_int32),
    ]  # fmt: skip


class _Call(ctypes.Structure):
    _fields_ = [
        ("abi", ctypes.c_int32), ("n_in", ctypes.c_int32), ("n_const", ctypes.c_int32), ("n_out", ctypes.c_int32),
        ("threads", ctypes.c_int32),
        ("in_", ctypes.POINTER(_Tensor)), ("cst", ctypes.POINTER(_Tensor)), ("out", ctypes.POINTER(_Tensor)),
        ("packed", ctypes.c_void_p), ("ws", ctypes.c_void_p), ("ws_bytes", ctypes.c_int64),
    ]  # fmt: skip


class _Unusable(Exception):
    """Why the reference has to answer, in a sentence."""


class _Spec:
    """One tensor of a signature."""

    def __init__(self, row):
        self.name, shape, stride, dtype = row
        self.shape, self.stride = tuple(shape), tuple(stride)
        self.code, self.dtype = _DTYPES[dtype]
        self.ranges = None  # where values of an input must lie

    def fits(self, tensor):
        """Same sizes, dtype and strides; the stride of a dimension of size 1 means nothing."""
        return (
            tensor.dtype == self.dtype
            and tuple(tensor.shape) == self.shape
            and all(a == b or n == 1 for a, b, n in zip(tensor.stride(), self.stride, self.shape, strict=True))
        )

    def is_it(self, tensor):
        """As `fits`, for a plain tensor on the CPU; stricter about strides that mean nothing."""
        return (
            type(tensor) in _PLAIN
            and tensor.dtype is self.dtype
            and tensor.shape == self.shape
            and tensor.stride() == self.stride
            and tensor.is_cpu
            and tensor.layout is torch.strided
            and not tensor.is_neg()
        )

    def takes(self, tensor):
        """Whether torch takes all values: what it raises an error for (an index out of range) a kernel just reads."""
        if self.ranges is None or not tensor.numel():
            return True
        try:
            low, high = map(int, torch.aminmax(tensor))
        except RuntimeError:  # values that cannot be looked at (fake, or inside a transform)
            return False
        return any(a <= low and high <= b for a, b in self.ranges) or self._takes_each(tensor.long())

    def _takes_each(self, values):
        within = torch.zeros_like(values, dtype=torch.bool)
        for low, high in self.ranges:
            within |= (values >= low) & (values <= high)
        return bool(within.all())

    def fill(self, struct):
        struct.rank, struct.dtype = len(self.shape), self.code
        for at, (size, step) in enumerate(zip(self.shape, self.stride, strict=True)):
            struct.size[at], struct.stride[at] = size, step

    def __str__(self):
        return f"{self.name} {self.dtype} {list(self.shape)}"


class Kernel(torch.nn.Module):
    """Computes what `self.reference` computes, with a generated kernel wherever that is safe.

    The weights are those of `self.reference`, a module like any other: load a state dict into it,
    and the kernel uses the new values.
    """

    def __init__(self, entry, manifest, workload):
        super().__init__()
        self.entry = entry
        self._manifest = manifest
        rows = manifest["workloads"]
        names = [row["name"] for row in rows]
        if workload is not None and workload not in names:
            raise ValueError(f"expected a workload of {', '.join(names)}, got {workload!r}")
        self._rows = [row for row in rows if workload in (None, row["name"])]
        with torch.inference_mode(False):  # weights that were made in it do not count their changes
            self.reference = _make_model(_reference_module(self._rows[0]))
            # Where the reference itself hangs on a workload's constants every workload has its own; weights are shared.
            own = self._rows[1:] if manifest.get("own_references") else []
            self._others = {row["name"]: _make_model(_reference_module(row)) for row in own}
        if any(_weight_sizes(model) != _weight_sizes(self.reference) for model in self._others.values()):
            known = ", ".join(names)
            raise ValueError(
                f"expected a workload: each has weights of its own sizes; load(workload=…), one of {known}"
            )
        self._plans, self._doubts = {}, {}
        self._route = None
        self._lock = threading.Lock()
        self.eval()
        self._definition = _Definition(self)

    def forward(self, *args, **kwargs):
        try:
            route = self._route
            if route is not None and not kwargs and route.leads(args):
                return route.plan.rebuild(route.plan.run(args, route.constants))
            plan, leaves = self._choose(args, kwargs)
            outputs = plan.run(leaves, self._constants())
            look = self._definition.look
            straight = len(leaves) == len(args) and look.change is None
            self._route = _Route(self.reference, plan, look) if straight else None
        except _Unusable:
            return self._refer(self._row_of([*args, *kwargs.values()]), args, kwargs)
        return plan.rebuild(outputs)

    def why_not(self, *args, **kwargs):
        """Why the reference would answer for these inputs, in a sentence; None if the kernel would."""
        try:
            for output in self._choose(args, kwargs)[0].allocate():
                _address(output)
        except _Unusable as reason:
            return str(reason)
        return None

    def __deepcopy__(self, memo):
        raise TypeError("a Kernel cannot be copied; call load() again and copy the weights of .reference")

    def __reduce__(self):
        raise TypeError("a Kernel cannot be pickled; save the state dict of .reference")

    def _row_of(self, args):
        """The workload whose reference answers for these inputs: any, where all have the same."""
        if not self._others:
            return self._rows[0]
        given = [(tuple(t.shape), t.dtype) for t in pytree.tree_leaves(list(args)) if isinstance(t, torch.Tensor)]
        for row in self._rows:
            if [(spec.shape, spec.dtype) for spec in _specs(row)["inputs"]] == given:
                return row
        raise ValueError(
            f"expected the inputs of a workload ({_known(self._rows)}), on whose constants the reference depends; "
            "load(workload=…) chooses one for all inputs"
        )

    def _refer(self, row, args, kwargs):
        """What the reference of a workload returns, with the weights of `self.reference`."""
        model = self._others.get(row["name"])
        if model is None:
            return self.reference(*args, **kwargs)
        if change := self._definition.change():
            raise ValueError(
                f"{change}, which does not reach the reference of workload {row['name']}; "
                f"load(workload={row['name']!r}) has it in .reference"
            )
        for ours, theirs in zip(model.modules(), self.reference.modules(), strict=True):
            ours.training = theirs.training
        weights = {**dict(self.reference.named_parameters()), **dict(self.reference.named_buffers())}
        return torch.func.functional_call(model, weights, args, kwargs)

    def _constants(self):
        """Parameters, then buffers: the order in which kernels know them."""
        return [*self.reference.parameters(), *self.reference.buffers()]

    def _choose(self, args, kwargs):
        """The plan for these inputs and their tensors."""
        if torch.compiler.is_compiling() or torch.jit.is_tracing():
            raise _Unusable("torch is tracing")
        if kwargs:
            raise _Unusable("keyword arguments: pass inputs by position")
        for module in self.reference.modules():
            if module.training:
                raise _Unusable("the module, or a part of it, is in training mode; call .eval()")
            if "parametrizations" in module._modules:
                raise _Unusable("a weight is parametrized")
        if any(_EVERYWHERE):
            raise _Unusable("a hook is registered on all modules")
        if change := self._definition.change():
            raise _Unusable(change)
        leaves = [leaf for leaf in pytree.tree_leaves(list(args)) if isinstance(leaf, torch.Tensor)]
        constants = self._constants()
        for tensor in (*leaves, *constants):
            _require_plain(tensor)
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (*leaves, *constants)):
            raise _Unusable("a gradient may be asked for; call under torch.no_grad()")
        if getattr(torch.autograd.forward_ad, "_current_level", -1) >= 0:
            raise _Unusable("a forward-mode gradient may be asked for")
        if torch.is_autocast_enabled("cpu"):
            raise _Unusable("autocast is on")
        row = self._match(leaves, constants)
        for spec, leaf in zip(_specs(row)["inputs"], leaves, strict=True):
            if not spec.takes(leaf):
                raise _Unusable(f"values of {spec.name} that the kernel is not for (an index out of range?)")
        return self._plan(row, args, leaves, constants), leaves

    def _match(self, leaves, constants):
        fitting = [row for row in self._rows if _fit(_specs(row)["inputs"], leaves)]
        for row in fitting:
            if _fit(_specs(row)["constants"], constants):
                return row
        what = "weights of other" if fitting else "other"
        raise _Unusable(f"{what} sizes, strides or dtypes than the kernel was made for ({_known(self._rows)})")

    def _plan(self, row, args, leaves, constants):
        key = row["name"], torch.get_num_threads()  # what is right on two threads need not be on four
        plan = self._plans.get(key)
        if plan is None:
            with self._lock:
                plan = self._plans.get(key)
                if plan is None:
                    model = self._others.get(row["name"], self.reference)
                    expected = row["arguments"] = row.get("arguments") or _expected_arguments(row, model)
                    _require_same(expected, args)  # another call may be the right one
                    plan = self._plans[key] = self._make_plan(row, args, leaves, constants)
        if isinstance(plan, _Unusable):
            raise plan
        _require_same(plan.arguments, args)
        return plan

    def _make_plan(self, row, args, leaves, constants):
        """Builds and tries the kernel; what goes wrong here is wrong for good, and is said once."""
        try:
            try:
                plan = _Plan(self.entry, self._manifest, row, row["arguments"])
            except OSError as error:  # no room, a folder that runs nothing, …
                raise _Broken(f"the kernel cannot be built or loaded: {error}") from None
            plan.learn(self._refer(row, args, {}))
            plan.try_out(leaves, constants)
        except _Unusable as reason:
            if isinstance(reason, _Differs):
                doubts = self._doubts[row["name"]] = self._doubts.get(row["name"], 0) + 1
                if doubts < _DOUBTS:
                    raise _Unusable(f"{reason}; the next calls will tell") from None
            if isinstance(reason, _Broken):
                warnings.warn(f"{__package__}: the PyTorch reference is used: {reason}", RuntimeWarning, stacklevel=5)
            return reason
        return plan


class _Route:
    """What `Kernel._choose` found last, of arguments that are plain tensors; `leads` takes less time than it."""

    def __init__(self, reference, plan, look):
        self.plan, self._look = plan, look
        self._inputs = plan.specs["inputs"]
        self._threads = torch.get_num_threads()
        holders = [held for module in reference.modules() for held in (module._parameters, module._buffers)]
        self._holders = [(held, dict(held)) for held in holders if held]
        self._empty = [held for held in holders if not held]
        self.constants = [*reference.parameters(), *reference.buffers()]

    def leads(self, args):
        """Whether nothing has changed that could send these arguments elsewhere."""
        return (
            not torch.compiler.is_compiling()  # before all that a compiler would have to follow
            and len(args) == len(self._inputs)
            and torch.get_num_threads() == self._threads
            and all(map(_Spec.is_it, self._inputs, args))
            and all(map(_Spec.is_it, self.plan.specs["constants"], self.constants))
            and not any(self._empty)
            and not any(_EVERYWHERE)
            and self._look.holds()
            and all(_same(held, known) for held, known in self._holders)
            and not (torch.is_grad_enabled() and any(one.requires_grad for one in (*args, *self.constants)))
            and not torch.is_autocast_enabled("cpu")
            and not torch.jit.is_tracing()
            and getattr(torch.autograd.forward_ad, "_current_level", -1) < 0
            and all(map(_Spec.takes, self._inputs, args))
        )


def _same(held, known):
    """Whether two dicts hold the very same tensors, which must not be compared."""
    return held.keys() == known.keys() and all(held[name] is one for name, one in known.items())


class _Definition:
    """What the reference makes of weights and inputs, as it was when it was loaded."""

    def __init__(self, kernel):
        self._kernel = kernel
        self._made = {what: _frozen(value) for what, value in _traits(kernel.reference)}
        self.look = _Look(kernel, self._made)

    def change(self):
        """What is not as it was, in a sentence; None where everything is."""
        if not self.look.holds():
            self.look = _Look(self._kernel, self._made)
        return self.look.change


class _Look:
    """All that hangs on the modules at one time, and what that changes; `holds` sees in little time that it stayed."""

    def __init__(self, kernel, made):
        self._modules = list(kernel.reference.modules())
        parts = [(vars(one), one._modules, one._forward_pre_hooks, one._forward_hooks) for one in self._modules]
        self._now = [kernel._modules, *(held for part in parts for held in part)]
        self._then = [
            {name: one if name in _BOOKS else _frozen(one) for name, one in held.items()} for held in self._now
        ]
        self._kinds = list(map(type, self._modules))
        self._forwards = [kind.forward for kind in self._kinds]
        now = dict(_traits(kernel.reference))
        changes = (what for what in {**now, **made} if not _equal([made.get(what)], [now.get(what)]))
        self.change = next((f"changed since load(): {what}" for what in changes), None)

    def holds(self):
        return (
            _equal(self._then, self._now)
            and list(map(type, self._modules)) == self._kinds
            and [kind.forward for kind in self._kinds] == self._forwards
        )


class _Numbers:
    """A tensor that is no weight, and how often it was written to: kernels have its numbers in their source."""

    def __init__(self, tensor):
        self._tensor, self._version = tensor, tensor._version

    def __eq__(self, other):
        return other is self._tensor and other._version == self._version

    __hash__ = None


def _frozen(value):
    """What equals `value` until something is written into it or into a list, dict or tensor that it holds."""
    return pytree.tree_map(_kept, value)


def _kept(leaf):
    counts = type(leaf) is torch.Tensor and not leaf.is_inference()
    return _Numbers(leaf) if counts else leaf


def _equal(one, other):
    try:
        return one == other
    except (RuntimeError, ValueError):  # other tensors, other arrays
        return False


def _traits(model):
    """Names and values of what decides, beside weights, what modules compute."""
    for path, module in model.named_modules():
        kind, where = type(module), f"reference.{path}".rstrip(".")
        yield f"the class of {where}", (kind, kind.forward)
        yield f"the hooks of {where}", [*module._forward_pre_hooks.values(), *module._forward_hooks.values()]
        for name, value in vars(module).items():
            weights = (isinstance(leaf, (torch.nn.Parameter, weakref.ref)) for leaf in pytree.tree_leaves(value))
            if name not in _BOOKS and name not in _notes(kind) and not any(weights):
                yield f"{where}.{name}", value


@functools.cache
def _notes(kind):
    """Attributes that forward, or a method it calls, assigns: what one call leaves there is no change."""
    names, methods, seen = set(), ["forward"], set()
    while methods:
        code = getattr(inspect.unwrap(getattr(kind, methods.pop(), None)), "__code__", None)
        if code is not None and code not in seen:
            seen.add(code)
            names.update(one.argval for one in dis.get_instructions(code) if one.opname == "STORE_ATTR")
            methods += code.co_names
    return names


class _Broken(_Unusable):
    """Something that the user may want to mend: said in a warning."""


class _Differs(_Broken):
    """A first call that is not what the reference says."""


class _Plan:
    """One kernel, built for one workload."""

    def __init__(self, entry, manifest, row, arguments):
        self.arguments = arguments
        self.specs = row["specs"]
        library = _build(entry, manifest, row)
        try:
            self._library = ctypes.CDLL(str(library))
        except OSError:  # cut off by a crash, perhaps: once more from the source
            library.unlink(missing_ok=True)
            self._library = ctypes.CDLL(str(_build(entry, manifest, row)))
        _ask_for_tiles()
        self._run = self._library.evo_run
        self._run.restype, self._run.argtypes = ctypes.c_int, [ctypes.POINTER(_Call)]
        self._workspace = self._optional("evo_workspace", ctypes.c_int64, [ctypes.POINTER(_Call)])
        self._packed_bytes = self._optional("evo_packed_bytes", ctypes.c_int64, [ctypes.POINTER(_Call)])
        self._prepare = self._optional("evo_prepare", ctypes.c_int, [ctypes.POINTER(_Call), ctypes.c_void_p])
        threads = torch.get_num_threads()  # a plan is for so many
        self._threads = min(manifest["threads"], threads) if "threads=" in manifest["target"] else threads
        self._local = threading.local()
        self._packing, self._packed = threading.Lock(), _NOTHING_PACKED
        self._spec = self._is_tensor = None

    def _optional(self, name, result, arguments):
        function = getattr(self._library, name, None)
        if function is not None:
            function.restype, function.argtypes = result, arguments
        return function

    def learn(self, result):
        """Remembers how the reference arranges its outputs, and what they were."""
        leaves, self._spec = pytree.tree_flatten(result)
        self._is_tensor = [leaf is not None for leaf in leaves]
        self._reference = [leaf for leaf in leaves if leaf is not None]
        specs = self.specs["outputs"]
        if len(specs) != len(self._reference) or not all(
            spec.dtype == out.dtype and spec.shape == tuple(out.shape)
            for spec, out in zip(specs, self._reference, strict=True)
        ):
            raise _Broken("the reference returns other tensors than it did when the kernel was made")

    def try_out(self, leaves, constants):
        """The first call, compared with the reference."""
        reference, self._reference = self._reference, None
        for at, (got, wanted) in enumerate(zip(self.run(leaves, constants), reference, strict=True)):
            if not _agrees(got, wanted):
                raise _Differs(f"on this machine output {at} of kernel {self._name()} differs from the reference")

    def _name(self):
        return Path(self._library._name).stem.partition("-")[0]

    def rebuild(self, outputs):
        waiting = iter(outputs)
        return pytree.tree_unflatten([next(waiting) if used else None for used in self._is_tensor], self._spec)

    def allocate(self):
        specs = self.specs["outputs"]
        return [torch.empty_strided(one.shape, one.stride, dtype=one.dtype, device="cpu") for one in specs]

    def run(self, leaves, constants):
        """The outputs. Raises _Unusable if the kernel declines; then nothing was written."""
        state, outputs = self._state(), self.allocate()
        for structs, tensors in ((state.in_, leaves), (state.cst, constants), (state.out, outputs)):
            for struct, tensor in zip(structs, tensors, strict=True):
                struct.data = _address(tensor)
        call = state.call
        packed = self._pack(call, constants)  # lives until the call is over, whatever others pack meanwhile
        call.packed = None if packed is None else packed.data_ptr()
        if self._workspace is not None:
            state.reserve(self._workspace(ctypes.byref(call)))
        code = self._run(ctypes.byref(call))
        if code != 0:
            raise _Unusable("the kernel declines these inputs" if code == 1 else f"the kernel ended with status {code}")
        return outputs

    def _pack(self, call, constants):
        """The packed weights, for all threads; anew only when one was replaced or written to."""
        if self._prepare is None or self._packed_bytes is None:
            return None
        tracked = not any(tensor.is_inference() for tensor in constants)  # those do not count their changes
        key = [(tensor.data_ptr(), tensor._version) for tensor in constants] if tracked else None
        with self._packing:
            known, packed, _ = self._packed
            if key is None or key != known:
                self._packed = _NOTHING_PACKED
                packed = _bytes(self._packed_bytes(ctypes.byref(call)))
                if self._prepare(ctypes.byref(call), packed.data_ptr()) != 0:
                    raise _Unusable("the kernel could not prepare its weights")
                # While these live nothing else gets their addresses, so that a key cannot come back for other weights.
                self._packed = key, packed, [tensor.untyped_storage() for tensor in constants]
        return packed

    def _state(self):
        if not hasattr(self._local, "state"):
            self._local.state = _State(self.specs, self._threads)
        return self._local.state


class _State:
    """The call structure of one thread."""

    def __init__(self, specs, threads):
        self.in_, self.cst, self.out = ((_Tensor * max(len(specs[part]), 1))() for part in specs)
        groups = [(self.in_, specs["inputs"]), (self.cst, specs["constants"]), (self.out, specs["outputs"])]
        for structs, rows in groups:
            for struct, spec in zip(structs, rows, strict=False):
                spec.fill(struct)
        self.call = _Call(1, *(len(rows) for _, rows in groups), threads, self.in_, self.cst, self.out, None, None, 0)
        self.in_, self.cst, self.out = (list(structs)[: len(rows)] for structs, rows in groups)
        self._keep = groups
        self.workspace = None

    def reserve(self, nbytes):
        if nbytes > self.call.ws_bytes or self.workspace is None:
            self.workspace = _bytes(nbytes)
            self.call.ws = self.workspace.data_ptr()
        self.call.ws_bytes = nbytes


def _bytes(count):
    if count < 0:
        raise _Unusable(f"the kernel asks for {count} bytes of memory")
    return torch.empty(max(count, 1), dtype=torch.uint8, device="cpu")


def _require_plain(tensor):
    if type(tensor) not in _PLAIN:
        raise _Unusable(f"a tensor of the class {type(tensor).__name__}")
    if tensor.device.type != "cpu" or tensor.layout != torch.strided:
        raise _Unusable(f"a tensor on {tensor.device}, {tensor.layout}; the kernel is for dense tensors on the CPU")
    if tensor.is_neg() or tensor.is_conj():
        raise _Unusable("a view that torch negates or conjugates as it reads; pass its resolve_neg().resolve_conj()")
    _address(tensor)


def _address(tensor):
    try:
        address = tensor.data_ptr()
    except RuntimeError:
        raise _Unusable("a tensor without memory of its own (fake, or inside a transform)") from None
    if not address and tensor.numel():
        raise _Unusable("tensors are without memory (FakeTensorMode?)")
    if address % _ALIGN:
        raise _Unusable(
            f"a tensor that does not start at a multiple of {_ALIGN} bytes (a slice, NumPy's memory?); clone() it"
        )
    return address


def _arguments(args):
    """Structure and values of the arguments, tensors left out."""
    leaves, spec = pytree.tree_flatten(list(args))
    return spec, [None if isinstance(leaf, torch.Tensor) else (type(leaf), leaf) for leaf in leaves]


def _require_same(expected, args):
    if _arguments(args) != expected:
        raise _Unusable("other arguments than the kernel was made for, or arranged otherwise")


def _expected_arguments(row, model):
    """What get_inputs() passes, looked at without allocating where its code allows that."""
    make = _reference_module(row).get_inputs
    try:
        with torch.device("meta"):
            values = make()
    except Exception:
        values = make()
    if isinstance(values, dict):
        forward = model._function if isinstance(model, _Plain) else model.forward
        bound = inspect.signature(forward).bind(**values)
        bound.apply_defaults()
        values = bound.args
    return _arguments([values] if isinstance(values, torch.Tensor) else list(values))


def _agrees(got, wanted):
    wide = _FIRST_CALL.get(wanted.dtype)
    if wide is None:
        return bool((got == wanted).float().mean() >= 0.999) if wanted.numel() else True
    a, b = got.double(), wanted.double()
    finite = torch.isfinite(b)
    scale = b[finite].square().mean().sqrt() if finite.any() else torch.tensor(0.0)
    near = (a - b).abs() <= wide * (b.abs() + scale) + 1e-30
    return bool((near | (a == b) | (a.isnan() & b.isnan())).all())


def _specs(row):
    """The tensors of a workload."""
    if "specs" not in row:
        signature = row["signature"]
        specs = {part: [_Spec(spec) for spec in signature[part]] for part in ("inputs", "constants", "outputs")}
        for spec, ranges in zip(specs["inputs"], row["ranges"], strict=True):
            spec.ranges = ranges
        row["specs"] = specs
    return row["specs"]


def _fit(specs, tensors):
    return len(specs) == len(tensors) and all(spec.fits(one) for spec, one in zip(specs, tensors, strict=True))


def _known(rows):
    """The inputs of workloads, for messages."""
    return "; ".join(", ".join(map(str, _specs(row)["inputs"])) for row in rows)


def _weight_sizes(model):
    return [(name, tuple(one.shape)) for name, one in (*model.named_parameters(), *model.named_buffers())]


def _reference_module(row):
    return importlib.import_module(f"{__package__}.references.{row['reference']}")


def _make_model(source):
    make = getattr(source, "get_init_inputs", list)
    positional, named = _init_arguments(source.Model, make() or ())
    model = source.Model(*positional, **named) if isinstance(source.Model, type) else source.Model
    model = model if isinstance(model, torch.nn.Module) else _Plain(model)
    _adopt_tensors(model)
    _adopt_globals(model, source)
    _lay_out(model)
    _keep_state(model)
    return model


def _init_arguments(model, given):
    """Positions and names of ``[[2, 3], {"bias": False}]``, where Model has such names."""
    if len(given) == 2 and isinstance(given[0], list) and isinstance(given[1], dict):
        ways = [(given, {}), (given[0], given[1])]
        for positional, named in reversed(ways) if given[1] else ways:
            try:
                inspect.signature(model).bind(*positional, **named)
                return positional, named
            except (TypeError, ValueError):
                pass
    return given, {}


def _keep_state(model):
    """Tensors that forward assigns anew are the old ones again afterwards, as where the kernel was judged."""
    modules = [module for module in model.modules() if module._non_persistent_buffers_set]
    before = []

    def remember(*_):
        before.append([dict(module._buffers) for module in modules])

    def restore(*_):
        for module, buffers in zip(modules, before.pop(), strict=True):
            module._buffers.clear()
            module._buffers.update(buffers)

    if modules:
        model.register_forward_pre_hook(remember)
        model.register_forward_hook(restore, always_call=True)


def _adopt_tensors(model):
    """Makes buffers of tensors that are plain attributes: kernels know them as constants."""
    weights = _memory(model)
    for module in model.modules():
        for name, value in list(vars(module).items()):
            if _adoptable(value, weights) and not hasattr(type(module), name):
                del vars(module)[name]
                whole = value.untyped_storage().nbytes() == value.nbytes
                module.register_buffer(name, value if whole else value.clone(), persistent=False)


def _adopt_globals(model, source):
    """Makes buffers also of top-level tensors that functions of the reference read; forward still reads the global."""
    weights, read = _memory(model), _names_in(compile(Path(source.__file__).read_bytes(), source.__file__, "exec"))
    for name, value in vars(source).items():
        if name in read and _adoptable(value, weights) and value.untyped_storage().nbytes() == value.nbytes:
            model.register_buffer(f"global_{name}", value, persistent=False)
            weights.add(value.untyped_storage().data_ptr())


def _lay_out(model):
    """Moves weights that a kernel cannot read where they lie (NumPy's memory, a slice, an expanded mask), as they were
    moved where it was judged. They stay the tensors that they are, and what shares memory with another stays there."""
    weights = [one for one in (*model.parameters(), *model.buffers()) if type(one) in _PLAIN]
    weights = [one for one in weights if one.is_cpu and one.layout is torch.strided]
    reaches = [_reach(one) for one in weights]
    for one, (start, end) in zip(weights, reaches, strict=True):
        repeats = any(step == 0 and size > 1 for step, size in zip(one.stride(), one.shape, strict=True))
        shared = sum(start < other_end and other_start < end for other_start, other_end in reaches) > 1
        if (start % _ALIGN or repeats) and not shared:
            stride = torch.empty(one.shape, device="meta").stride() if repeats else one.stride()
            one.data = torch.empty_strided(one.shape, stride, dtype=one.dtype, device="cpu").copy_(one.detach())


def _reach(tensor):
    """The addresses where a tensor begins and ends."""
    start = tensor.data_ptr()
    steps = zip(tensor.stride(), tensor.shape, strict=True)
    return start, start + (1 + sum(step * (size - 1) for step, size in steps)) * tensor.element_size()


def _memory(model):
    return {one.untyped_storage().data_ptr() for one in (*model.parameters(), *model.buffers())}


def _adoptable(value, weights):
    return (
        type(value) is torch.Tensor
        and value.numel() > 1
        and value.dim() <= 8
        and value.layout == torch.strided
        and value.device.type == "cpu"
        and value.dtype in {dtype for _, dtype in _DTYPES.values()}
        and value.untyped_storage().data_ptr() not in weights
    )


def _names_in(code):
    inner = [one for one in code.co_consts if isinstance(one, type(code))]
    kept = [one for one in inner if one.co_name not in ("get_inputs", "get_init_inputs")]
    return {name for one in kept for name in (*one.co_names, *_names_in(one))}


class _Plain(torch.nn.Module):
    """A reference that is not a module itself."""

    def __init__(self, function):
        super().__init__()
        self._function = function

    def forward(self, *args, **kwargs):
        return self._function(*args, **kwargs)


def _cpu_flags():
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), ()))


def _build(entry, manifest, row):
    """The path of the compiled kernel: from the cache, or compiled now."""
    flags = _cpu_flags()
    missing = sorted(set(manifest["cpu_flags"]) - flags)
    if missing:
        raise _Broken(f"this CPU lacks {', '.join(missing)}, which the kernels were made for")
    compiler = os.environ.get("CXX", "").strip() or "g++"
    try:
        version = subprocess.run([compiler, "--version"], capture_output=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise _Broken(f"no C++ compiler ({compiler}: {error}); install g++ or set CXX") from None
    if b"clang" in version.lower():
        raise _Broken(
            f"{compiler} is clang, and the kernels were made for gcc; install g++, and unset CXX or set it to that"
        )
    source = _HERE / "kernels" / f"{entry['candidate'][:12]}.cpp"
    defines = [f"-D{name}={value}" for name, value in sorted(entry["params"].items())]
    for group, name in (("inputs", "in"), ("constants", "cst"), ("outputs", "out")):
        for index, spec in enumerate(row["specs"][group]):
            for dim, (size, step) in enumerate(zip(spec.shape, spec.stride, strict=True)):
                defines += [f"-DEVO_SIZE_{name}{index}_{dim}={size}", f"-DEVO_STRIDE_{name}{index}_{dim}={step}"]
    openmp = _loaded_openmp()
    digest = hashlib.sha256(version)
    for text in (*sorted(flags), *manifest["compile_flags"], *defines, str(openmp), source.read_text(encoding="utf-8")):
        digest.update(text.encode() + b"\0")
    for header in sorted((_HERE / "include").glob("*.h")):
        digest.update(header.read_bytes())
    folder = _cache()
    library = folder / f"{source.stem}-{digest.hexdigest()[:24]}.so"
    if not library.exists():
        _compile(compiler, [*manifest["compile_flags"], *defines], source, openmp, library)
    return library


def _ask_for_tiles():
    """The system lets a process use AMX's tile registers once it has asked; without, their first use kills it."""
    if {"amx_tile", "amx_bf16"} <= _cpu_flags() and ctypes.CDLL(None).syscall(*_ASK_FOR_TILES):
        raise _Broken("the system does not let this process use AMX tiles")


def _compile(compiler, flags, source, openmp, library):
    with tempfile.TemporaryDirectory(prefix="build-", dir=library.parent) as work:
        compiled, linked = Path(work, "kernel.o"), Path(work, "kernel.so")
        _command([compiler, *flags, f"-I{_HERE / 'include'}", "-c", str(source), "-o", str(compiled)])
        link = [compiler, "-shared", "-Wl,-z,relro,-z,now,-z,noexecstack", "-o", str(linked), str(compiled), "-lm"]
        # torch's own OpenMP if it has one: two pools of threads in one process slow each other down.
        tries = [[openmp], ["-fopenmp"]] if openmp else [["-fopenmp"]]
        for at, extra in enumerate(tries):
            try:
                _command([*link, *extra])
                break
            except _Broken:
                if at == len(tries) - 1:
                    raise
        linked.replace(library)  # at once, so that another process sees all of it or nothing


def _command(command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=300, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        raise _Broken(f"the compiler did not run: {error}") from None
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        raise _Broken(f"the compiler refused the kernel: {next((t for t in lines if 'error' in t), lines[0])[:300]}")


def _loaded_openmp():
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    found = [line.split(maxsplit=5)[5].strip() for line in lines if "/libgomp" in line]
    return found[0] if found else None


def _cache():
    """A folder that this user alone can write; a temporary one where there is none."""
    explicit, base = os.environ.get("EVOFORGE_KERNEL_CACHE"), os.environ.get("XDG_CACHE_HOME")
    try:
        folder = Path(explicit) if explicit else Path(base or Path.home() / ".cache", "evoforge-kernels")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
        if found.st_uid == os.geteuid() and not found.st_mode & 0o022 and os.access(folder, os.W_OK | os.X_OK):
            return folder
    except (OSError, RuntimeError):  # an account without a home
        pass
    return _private_folder()


_private = None


def _private_folder():
    global _private
    if _private is None:
        _private = tempfile.TemporaryDirectory(prefix="evoforge-kernels-")
    return Path(_private.name)

"""One workload of a task, executed: module, weights, inputs, outputs, in any precision. Child only."""

from __future__ import annotations

import contextlib
import copy
import inspect
import linecache
import random
import sys
import traceback
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from evoforge.core import Signature
from evoforge.errors import EvoforgeError, TaskError, UnsupportedError
from evoforge.evaluation.shared import available_bytes
from evoforge.evaluation.tasks import apply_overrides, tolerance_of
from evoforge.evaluation.wire import PARTLY
from evoforge.evaluation.worker_precision import NamedAs
from evoforge.evaluation.worker_state import adopt_globals, adopt_tensors, kept, share_plain_tensors
from evoforge.evaluation.worker_tensors import TORCH_DTYPES, OnCpu, disjoint, drawn, plain, spec_of

__all__ = ["WorkloadModel"]


def _init_arguments(entry: Any, arguments: Sequence[Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """What Model is called with: ``[[2, 3], {"bias": False}]`` holds positions and names, where Model has such names.

    Without any names it does where Model does not take a list and a dict.
    """
    if len(arguments) == 2 and isinstance(arguments[0], list) and isinstance(arguments[1], dict):
        ways: list[tuple[Sequence[Any], Mapping[str, Any]]] = [(arguments, {}), (arguments[0], arguments[1])]
        for positional, named in reversed(ways) if arguments[1] else ways:
            with contextlib.suppress(TypeError, ValueError):
                inspect.signature(entry).bind(*positional, **named)
                return positional, named
    return arguments, {}


class WorkloadModel:
    """Executes the task module in a namespace of its own, with its constants overridden.

    The module runs, and the model is made, right after seeding with `seed`: every process of a
    campaign has the same weights. Models are in eval mode. Weights that say nothing before training, as gains of
    zero or one and fresh statistics, are moved where the model bears it: what is timed is work that a trained model
    needs.

    Raises:
        TaskError: the task's code failed or does not fit; file, line and what was expected.
    """

    def __init__(
        self,
        *,
        source: str,
        path: str,
        root: str | None,
        workload: str,
        overrides: Mapping[str, Any],
        seed: int,
        stage: Callable[[str], None],
    ) -> None:
        self._path, self._root, self._workload, self._seed, self._stage = path, root, workload, seed, stage
        self._file = f"{path}[{workload}]"
        tolerance = tolerance_of(source, path)
        self.precision, self.factor = tolerance.precision, tolerance.factor
        text = apply_overrides(source, overrides)
        # A file name of its own: torch.compile keys what it learns about shapes by it.
        linecache.cache[self._file] = (len(text), None, text.splitlines(keepends=True), self._file)
        self._check_memory(text)
        self._module = self._execute(text)
        self.model = self._make_model(self._module, seed)
        self._get_inputs = getattr(self._module, "get_inputs", None)
        leaves, self._spec = self._flat_inputs(seed)
        self._names_gpu = False
        self._leaves = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        self._is_tensor = [isinstance(leaf, torch.Tensor) for leaf in leaves]
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        self.signature = self._describe_as_trained(tensors) or self._describe(tensors)

    def redrawn(self, seed: int) -> WorkloadModel:
        """The same workload with other weights.

        They are made anew under `seed`, and parameters and running statistics are then scaled by U[0.5, 1.5) and moved
        by a tenth of their size, since what every initialisation has (equal layers, zeros in a triangle, a length that
        is another parameter) does not outlast training. Of every four seeds the first two also negate a quarter of
        those that come out the same, untrained or of one sign, make a quarter 4 to 8 times as large, and a quarter of
        the variances as small as a dead channel's; the last one leaves alone what comes out different. Under even
        seeds finite buffers of the state dict are scaled, too, those of zeros moved: nobody says that they keep what
        the task puts there. A model whose weights then have other shapes keeps those that it had. Under seeds from n
        times `PARTLY` on only n elements of one parameter, anywhere in it, are others.
        """
        if seed >= PARTLY:
            return self._touched(*divmod(seed, PARTLY))
        model = copy.deepcopy(self._make_model(self._module, seed))
        old = {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}
        new = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        if [(name, w.shape, w.stride(), w.dtype) for name, w in old.items()] != [
            (name, w.shape, w.stride(), w.dtype) for name, w in new.items()
        ]:
            return self
        generator = torch.Generator().manual_seed(seed)
        loaded = model.state_dict().keys()
        far, anew, buffers = seed % 4 < 2, seed % 4 == 3, seed % 2 == 0
        for name, weight in new.items():
            if not weight.is_floating_point() or not disjoint(weight):
                continue
            same = torch.equal(weight, old[name]) or _untrained(weight)
            if _trainable(name, weight):
                one_sign = bool((weight >= 0).all()) or bool((weight <= 0).all())
                if same or not anew:
                    weight.copy_(_moved(name, weight, generator))
                if far and name.endswith("running_var"):
                    weight.mul_(_as_far_as_dead_channels(weight, generator))
                elif far and (same or one_sign):
                    weight.mul_(_as_far_as_training_goes(weight, generator))
            elif buffers and same and name in loaded and bool(weight.isfinite().all()):
                if weight.any():
                    weight.mul_(torch.rand(weight.shape, generator=generator).to(weight.dtype) + 0.5)
                else:
                    weight.copy_(_moved(name, weight, generator))
        share_plain_tensors(self.model, model)
        other = copy.copy(self)
        other.model = model
        return other

    def _touched(self, count: int, seed: int) -> WorkloadModel:
        anew, generator = self.redrawn(seed), torch.Generator().manual_seed(seed)
        made = copy.deepcopy(self.model)
        pairs = zip(made.parameters(), anew.model.parameters(), strict=True)
        unlike = [(own, other) for own, other in pairs if own.is_floating_point() and not torch.equal(own, other)]
        if not unlike:
            return self
        own, other = unlike[int(torch.randint(len(unlike), (), generator=generator))]
        values, places = own.flatten(), torch.randint(own.numel(), (count,), generator=generator)
        values[places] = other.flatten()[places]
        own.copy_(values.view(own.shape))
        share_plain_tensors(self.model, made)
        found = copy.copy(self)
        found.model = made
        return found

    def example(self) -> list[Any]:
        """Forward's arguments from get_inputs() under the campaign's seed, laid out as every kernel gets them."""
        drawn = self.inputs(self._seed, "given")
        return self.arguments([one if disjoint(one) else one.contiguous() for one in drawn])

    def arguments(self, tensors: Sequence[torch.Tensor]) -> list[Any]:
        """Forward's arguments with `tensors` in place of the tensor leaves."""
        waiting = iter(tensors)
        leaves = [
            next(waiting) if is_tensor else leaf for is_tensor, leaf in zip(self._is_tensor, self._leaves, strict=True)
        ]
        return list(pytree.tree_unflatten(leaves, self._spec))

    def on_cpu(self) -> AbstractContextManager[Any]:
        """Within it the model runs here where forward() itself names a GPU; it costs time, and others none."""
        return OnCpu() if self._names_gpu else contextlib.nullcontext()

    def constants(self) -> list[torch.Tensor]:
        named = [*self.model.named_parameters(), *self.model.named_buffers()]
        return [plain(tensor, f"parameter {name}") for name, tensor in named]

    def inputs(self, seed: int, family: str) -> list[torch.Tensor]:
        leaves, _ = self._flat_inputs(seed)
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        shapes = [tuple(tensor.shape) for tensor in tensors]
        if shapes != [spec.shape for spec in self.signature.inputs]:
            raise self._refused(f"expected get_inputs() to return the same shapes every time, got {shapes}")
        generator = torch.Generator().manual_seed(seed)
        name, _, domain = family.partition(" ")
        if domain not in ("(first)", "(last)"):
            return [drawn(tensor, family, generator) for tensor in tensors]
        floats = [at for at, tensor in enumerate(tensors) if tensor.is_floating_point()]
        chosen = floats[0 if domain == "(first)" else -1] if floats else -1
        return [
            drawn(tensor, f"{name} (positive)", generator) if at == chosen else tensor
            for at, tensor in enumerate(tensors)
        ]

    def outputs(self, tensors: Sequence[torch.Tensor], precision: str) -> list[torch.Tensor]:
        """The outputs in fp32 (f64 tasks: as they are) or with everything in bfloat16."""
        if precision == "bf16":
            results = self.run_as(torch.bfloat16, tensors)
        else:
            wide = any(tensor.dtype == torch.float64 for tensor in tensors)
            results = self.run_as(torch.float64 if wide else torch.float32, tensors)
        return [
            result.to(TORCH_DTYPES[spec.dtype]) for result, spec in zip(results, self.signature.outputs, strict=True)
        ]

    @contextlib.contextmanager
    def blamed(self, what: str) -> Iterator[None]:
        """Turns what the task's code raises into a TaskError with its file and line."""
        try:
            yield
        except EvoforgeError:
            raise
        except BaseException as error:  # process boundary: task code may raise anything, SystemExit too
            traceback.print_exc()
            if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
                raise self._too_large("more memory than that") from None
            lines = str(error).strip().splitlines()
            first = lines[0].removesuffix(", but expected one of:") if lines else ""
            text = f"{type(error).__name__}: {first}" if lines else type(error).__name__
            if "precision" in what and ("dtype" in text or "scalar type" in text):
                text += "; a tensor from outside of the module keeps its type: self.register_buffer makes it its own"
            place = self._where(traceback.extract_tb(error.__traceback__))
            raise TaskError(
                f"{place}: expected {what} of workload {self._workload!r} to run, it raised {text}"
            ) from None

    def _where(self, frames: Sequence[traceback.FrameSummary]) -> str:
        own = [frame for frame in frames if frame.filename == self._file]
        under = [frame for frame in frames if self._root and frame.filename.startswith(self._root + "/")]
        if own:
            return f"{self._path}:{own[-1].lineno}"
        return f"{under[-1].filename}:{under[-1].lineno}" if under else self._path

    def _refused(self, sentence: str) -> TaskError:
        return TaskError(f"{self._path}: workload {self._workload!r}: {sentence}")

    def _too_large(self, needed: str) -> TaskError:
        have = available_bytes() / 2**30
        return self._refused(
            f"expected a workload that fits into the {have:.1f} GiB of memory available, it needs {needed}; "
            "make it smaller with --set NAME=VALUE or in WORKLOADS"
        )

    def _execute(self, text: str) -> types.ModuleType:
        module = types.ModuleType(f"evoforge_task_{abs(hash(self._file)):x}")
        module.__file__ = self._path
        sys.modules[module.__name__] = module
        self._stage(f"top level of the task file, workload {self._workload}")
        _seed_everything(self._seed)
        with self.blamed("the task file's top level"), OnCpu():
            self._code = compile(text, self._file, "exec")
            exec(self._code, module.__dict__)
        return module

    def _make_model(self, module: types.ModuleType, seed: int) -> torch.nn.Module:
        entry = getattr(module, "Model", None)
        get_init = getattr(module, "get_init_inputs", None)
        self._stage(f"Model(*get_init_inputs()) of workload {self._workload}")
        _seed_everything(seed)
        with self.blamed("get_init_inputs()"), OnCpu():
            arguments = get_init() if get_init is not None else []
        arguments = [] if arguments is None else arguments
        if not isinstance(arguments, list | tuple):
            raise self._refused(f"expected get_init_inputs() to return a list, got {type(arguments).__name__}")
        _seed_everything(seed)
        positional, named = _init_arguments(entry, arguments)
        with self.blamed("Model(*get_init_inputs())"), OnCpu():
            made = entry(*positional, **named) if isinstance(entry, type) else entry
        if not callable(made):
            raise self._refused(f"expected Model to be a torch.nn.Module or a function, got {type(made).__name__}")
        model = made if isinstance(made, torch.nn.Module) else _FunctionModel(made)
        held = (*model.named_parameters(), *model.named_buffers())
        if lazy := [name for name, tensor in held if torch.nn.parameter.is_lazy(tensor)]:
            raise self._refused(
                f"expected parameters whose sizes are known, got {', '.join(lazy)} of a lazy module; write the sizes "
                "out (nn.Linear for nn.LazyLinear)"
            )
        adopt_tensors(model)
        adopt_globals(model, module, self._code)
        return model.eval()

    def _flat_inputs(self, seed: int) -> tuple[list[Any], Any]:
        if not callable(self._get_inputs):
            raise self._refused("expected a function get_inputs(), found none")
        self._stage(f"get_inputs() of workload {self._workload}")
        _seed_everything(seed)
        with self.blamed("get_inputs()"), OnCpu(), _unseeded():
            values = self._get_inputs()
        if isinstance(values, torch.Tensor):
            values = [values]
        if isinstance(values, dict):
            values = self._by_position(values)
        if not isinstance(values, list | tuple):
            raise self._refused(
                f"expected get_inputs() to return a list of forward's arguments, got {type(values).__name__}"
            )
        leaves, spec = pytree.tree_flatten(list(values))
        return [
            plain(leaf, f"input {at}") if isinstance(leaf, torch.Tensor) else leaf for at, leaf in enumerate(leaves)
        ], spec

    def _by_position(self, named: Mapping[str, Any]) -> Sequence[Any]:
        """Forward's arguments in its own order, defaults filled in; exports find the same."""
        forward = self.model.function if isinstance(self.model, _FunctionModel) else self.model.forward
        try:
            bound = inspect.signature(forward).bind(**named)
        except (TypeError, ValueError) as error:
            raise self._refused(
                f"expected get_inputs() to return a list, or a dict with the names of forward's arguments: {error}"
            ) from None
        bound.apply_defaults()
        if bound.kwargs:
            left = ", ".join(bound.kwargs)
            raise self._refused(f"expected get_inputs() to return what forward takes by position, got {left}")
        return bound.args

    def _flat_outputs(self, result: Any) -> list[torch.Tensor]:
        leaves = [leaf for leaf in pytree.tree_leaves(result) if leaf is not None]
        for at, leaf in enumerate(leaves):
            if not isinstance(leaf, torch.Tensor):
                raise self._refused(f"expected forward() to return tensors, output {at} is {type(leaf).__name__}")
        if not leaves:
            raise self._refused("expected forward() to return at least one tensor, got none")
        return leaves

    def _describe_as_trained(self, tensors: list[torch.Tensor]) -> Signature | None:
        """The signature with untrained weights moved; None, with all as they were, where that is no task or none is."""
        generator = torch.Generator().manual_seed(self._seed)
        named = {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}
        untrained = {name: w for name, w in named.items() if _trainable(name, w) and _untrained(w)}
        held = {name: weight.clone() for name, weight in untrained.items()}
        if held:
            with contextlib.suppress(EvoforgeError, RuntimeError), torch.no_grad():
                for name, weight in untrained.items():
                    weight.copy_(_moved(name, weight, generator))
                return self._describe(tensors, finite=True)
            with torch.no_grad():
                for name, weight in untrained.items():
                    weight.copy_(held[name])
        return None

    def _describe(self, tensors: list[torch.Tensor], *, finite: bool = False) -> Signature:
        if not tensors:
            raise self._refused("expected get_inputs() to return at least one tensor, got none")
        inputs = tuple(spec_of(tensor, f"in{at}") for at, tensor in enumerate(tensors))
        constants = self.constants()
        before = [tensor._version for tensor in [*tensors, *constants]]
        self._stage(f"forward() of workload {self._workload}")
        with self.blamed("forward()"), kept(self.model), OnCpu() as devices:
            results = self._flat_outputs(self.model(*self.arguments(tensors)))
        self._names_gpu = devices.used
        for at, (tensor, version) in enumerate(zip([*tensors, *constants], before, strict=True)):
            if tensor._version != version:
                named = [name for name, _ in (*self.model.named_parameters(), *self.model.named_buffers())]
                which = f"input {at}" if at < len(tensors) else named[at - len(tensors)]
                place = self._changes_at(tensors, constants)
                raise UnsupportedError(
                    f"{place}: workload {self._workload!r}: forward() changes {which} in place, which is not "
                    "covered; return the new value instead"
                )
        named = [plain(result, f"output {at}") for at, result in enumerate(results)]
        if finite and not all(bool(one.isfinite().all()) for one in named):
            raise self._refused("expected finite outputs, got others")
        for what, group in (("input", tensors), ("output", named)):
            for at, tensor in enumerate(group):
                if not tensor.numel():
                    raise self._refused(
                        f"expected tensors with at least one element, {what} {at} has shape {tuple(tensor.shape)}; "
                        "make it larger with --set NAME=VALUE or in WORKLOADS"
                    )
        return Signature(
            inputs,
            tuple(spec_of(tensor, f"cst{at}") for at, tensor in enumerate(constants)),
            tuple(spec_of(tensor, f"out{at}") for at, tensor in enumerate(named)),
        )

    def _changes_at(self, tensors: Sequence[torch.Tensor], constants: Sequence[torch.Tensor]) -> str:
        """File and line of the first call in forward() that changes one of them in place."""
        watched = [*tensors, *constants]
        watch = _Watch(lambda: [one._version for one in watched])
        with self.blamed("forward()"), kept(self.model), watch, self.on_cpu():
            self.model(*self.arguments(tensors))
        return self._where(watch.frames)

    def _check_memory(self, text: str) -> None:
        """Adds up inputs and weights on the meta device, where nothing is allocated.

        Code that cannot run there is left to the limit on the address space.
        """
        try:
            with torch.device("meta"):
                module = self._execute(text)
                self._stage(f"get_inputs() of workload {self._workload}")
                leaves = pytree.tree_leaves(module.get_inputs())
                model = self._make_model(module, self._seed)
        except BaseException:  # process boundary: what is wrong is said when it runs for real
            return
        inputs = sum(leaf.nbytes for leaf in leaves if isinstance(leaf, torch.Tensor))
        weights = sum(tensor.nbytes for tensor in [*model.parameters(), *model.buffers()])
        # Two input sets, the inputs in double precision and perturbed; weights, a copy, doubles.
        needed = inputs * 6 + weights * 4
        if needed > available_bytes():
            raise self._too_large(f"at least {needed / 2**30:.1f} GiB with its double-precision reference")

    def converted(self, dtype: torch.dtype) -> torch.nn.Module:
        """A copy of the model in `dtype`."""
        with self.blamed("a copy of the model"):
            made: dict[int, Any] = {}
            copied = copy.deepcopy(self.model, made)
            for module in copied.modules():
                for name, value in vars(module).items():
                    if isinstance(value, types.FunctionType) and value.__closure__:
                        vars(module)[name] = _rebound(value, made)
            return copied.to(dtype)

    def run_as(self, dtype: torch.dtype, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """What forward() returns with everything that is floating in `dtype`."""
        cast = [tensor.to(dtype) if tensor.is_floating_point() else tensor for tensor in tensors]
        same = all(tensor.dtype == dtype for tensor in self.constants() if tensor.is_floating_point())
        model = self.model if same else self.converted(dtype)
        what = f"forward() in {str(dtype).removeprefix('torch.')}"
        with self.blamed(what), self._named_as(dtype), kept(model), self.on_cpu():
            return self._flat_outputs(model(*self.arguments(cast)))

    def _named_as(self, dtype: torch.dtype) -> NamedAs:
        """For running in `dtype` what names float32, or a 16-bit type that the task's own tensors have."""
        specs = (*self.signature.inputs, *self.signature.constants)
        short = {TORCH_DTYPES[spec.dtype] for spec in specs if spec.dtype in ("f16", "bf16")}
        return NamedAs({torch.float32, *short}, dtype)

    def run_in_double(
        self, model: torch.nn.Module, tensors: Sequence[torch.Tensor], within: AbstractContextManager[Any] | None = None
    ) -> list[torch.Tensor]:
        """What forward() of the converted model returns for float64 inputs: f64, whole numbers and bools as they are.

        `within` is active while forward() runs, and no longer.
        """
        # Tensors made inside forward() follow the default type, or one they name: float32 would spoil the reference.
        torch.set_default_dtype(torch.float64)
        try:
            with (
                self.blamed("forward() in double precision (judging needs it)"),
                self._named_as(torch.float64),
                within or contextlib.nullcontext(),
                kept(model),
                self.on_cpu(),
            ):
                result = model(*self.arguments(tensors))
        finally:
            torch.set_default_dtype(torch.float32)
        results, specs = self._flat_outputs(result), self.signature.outputs
        shapes = [tuple(one.shape) for one in results]
        if shapes != [spec.shape for spec in specs]:
            raise self._refused(
                f"expected forward() to return the same shapes in double precision, {[spec.shape for spec in specs]}, "
                f"got {shapes}; shapes that depend on values, and views of the bits of floats, are not covered"
            )
        return [one.double() if spec.is_float else one for one, spec in zip(results, specs, strict=True)]


class _Watch(TorchFunctionMode):  # type: ignore[misc]
    """Remembers the frames of the first function of torch that changes what `state` returns."""

    def __init__(self, state: Callable[[], Any]) -> None:
        super().__init__()
        self._state = state
        self.frames: Sequence[traceback.FrameSummary] = ()

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = self._state()
        result = function(*args, **(kwargs or {}))
        if not self.frames and before != self._state():
            self.frames = traceback.extract_stack()
        return result


class _FunctionModel(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *arguments: Any) -> Any:
        return self.function(*arguments)


def _rebound(function: types.FunctionType, made: Mapping[int, Any]) -> types.FunctionType:
    """A function that a module keeps, such as ``self.mlp = lambda x: inner(x)``, with the copies of what it holds."""
    held = [made.get(id(cell.cell_contents), cell.cell_contents) for cell in function.__closure__ or ()]
    return types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__,
        tuple(types.CellType(value) for value in held),
    )  # fmt: skip


def _trainable(name: str, weight: torch.Tensor) -> bool:
    named = isinstance(weight, torch.nn.Parameter) or name.endswith(("running_mean", "running_var"))
    return named and weight.is_floating_point() and disjoint(weight)


def _untrained(weight: torch.Tensor) -> bool:
    """Whether all elements are one number, a single one 0 or 1: a kernel that looks could leave out work."""
    first = weight.flatten()[:1]
    return bool((weight == first).all()) and (weight.numel() > 1 or first.tolist() in ([0.0], [1.0]))


def _moved(name: str, weight: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    scaled = weight.double() * (0.5 + torch.rand(weight.shape, generator=generator, dtype=torch.float64))
    size = float(weight.double().square().mean().sqrt()) or 1.0
    shift = 0.1 * size * torch.randn(weight.shape, generator=generator, dtype=torch.float64)
    return (scaled + (shift.abs() if name.endswith("running_var") else shift)).to(weight.dtype)


def _as_far_as_training_goes(weight: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Factors: −1 for a quarter of the elements, 4 to 8 for a quarter, both for some."""
    negated, larger, far = torch.rand((3, *weight.shape), generator=generator)
    return (torch.where(negated < 0.25, -1.0, 1.0) * torch.where(larger < 0.25, 4 + 4 * far, 1.0)).to(weight.dtype)


def _as_far_as_dead_channels(variance: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Factors: 2⁻¹⁰ to 2⁻²⁴ for a quarter of the elements, where it is ε that a root is taken of."""
    chosen, far = torch.rand((2, *variance.shape), generator=generator)
    return torch.where(chosen < 0.25, torch.exp2(-10 - 14 * far), 1.0).to(variance.dtype)


@contextlib.contextmanager
def _unseeded() -> Iterator[None]:
    """Nothing that is called here seeds a generator that all share: the numbers drawn go with the seed that was set."""
    places = [(torch, "manual_seed"), (torch.random, "manual_seed"), (torch.cuda, "manual_seed"),
              (torch.cuda, "manual_seed_all"), (np.random, "seed"), (random, "seed")]  # fmt: skip
    held = [getattr(module, name) for module, name in places]
    for module, name in places:
        setattr(module, name, lambda *_, **__: torch.default_generator)
    try:
        yield
    finally:
        for (module, name), function in zip(places, held, strict=True):
            setattr(module, name, function)


def _seed_everything(seed: int) -> None:
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)

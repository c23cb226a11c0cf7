import copy
import gc
import io
import math
import sys
import time
from itertools import product
from types import ModuleType

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.utils._python_dispatch import TorchDispatchMode

from distillkit.training.lamb import Lamb, foreach, fused, optimizer, slots
from distillkit.training.lamb import apex as apex_module

PATHS = ["loop", "fused", "foreach"]
SHAPES = [(5, 7), (33, 16), (9,), (2, 3, 4), (), (1, 1)]


class Reference:
    """The paper's formula in NVIDIA's form, one tensor at a time, in float64."""

    def __init__(self, groups, max_grad_norm=1.0):
        self.groups, self.max_grad_norm, self.state = groups, max_grad_norm, {}

    def step(self, grads):
        """Update from {id of parameter: gradient}; a parameter without one is passed over."""
        grads = {key: grad.double().clone() for key, grad in grads.items()}
        norm = math.sqrt(sum(float((grad**2).sum()) for grad in grads.values()))
        clip = 1.0 if self.max_grad_norm is None else max(1.0, norm / self.max_grad_norm)
        for group in self.groups:
            for p in group["params"]:
                if id(p) in grads:
                    self._update(
                        p, grads[id(p)] / clip, **{k: v for k, v in group.items() if k != "params"}
                    )

    def _update(
        self,
        p,
        g,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-6,
        weight_decay=0.01,
        bias_correction=True,
        grad_averaging=True,
        adam_w_mode=True,
        always_adapt=False,
        trust_clamp=None,
    ):
        t, m, v = self.state.get(id(p), (0, torch.zeros_like(p), torch.zeros_like(p)))
        if not adam_w_mode:
            g = g + weight_decay * p
        t += 1
        m = betas[0] * m + ((1 - betas[0]) if grad_averaging else 1.0) * g
        v = betas[1] * v + (1 - betas[1]) * g**2
        self.state[id(p)] = (t, m, v)
        m_hat = m / (1 - betas[0] ** t) if bias_correction else m
        v_hat = v / (1 - betas[1] ** t) if bias_correction else v
        u = m_hat / (v_hat.sqrt() + eps)
        if adam_w_mode:
            u = u + weight_decay * p
        ratio = 1.0
        if weight_decay != 0 or always_adapt:
            length, step = float((p**2).sum()) ** 0.5, float((u**2).sum()) ** 0.5
            if length > 0 and step > 0:
                ratio = length / step
                if trust_clamp:
                    ratio = min(max(ratio, trust_clamp[0]), trust_clamp[1])
        p -= lr * ratio * u


def tensors(seed=0, shapes=SHAPES, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) * scale for shape in shapes]


def parameters(seed=0, shapes=SHAPES):
    return [torch.nn.Parameter(value) for value in tensors(seed, shapes)]


def run(optimizer, params, steps, first=0, scale=1.0, missing=()):
    for step in range(first, first + steps):
        for index, (p, grad) in enumerate(
            zip(params, tensors(100 + step, [p.shape for p in params], scale), strict=True)
        ):
            p.grad = None if (step, index) in missing else grad.to(p.dtype)
        optimizer.step()


def run_reference(groups, params, steps, max_grad_norm=1.0, scale=1.0, missing=()):
    """Return what the reference makes of float64 copies of the parameters; groups are lists of indices and options."""
    copies = [p.detach().double().clone() for p in params]
    reference = Reference(
        [group | {"params": [copies[i] for i in group["params"]]} for group in groups],
        max_grad_norm,
    )
    for step in range(steps):
        grads = tensors(100 + step, [p.shape for p in params], scale)
        reference.step(
            {
                id(p): g
                for i, (p, g) in enumerate(zip(copies, grads, strict=True))
                if (step, i) not in missing
            }
        )
    return copies


def deviation(params, wanted):
    """Largest distance of two tensors over the length of the second."""
    pairs = [
        (p.detach().double(), w.detach().double()) for p, w in zip(params, wanted, strict=True)
    ]
    return max(float((p - w).norm() / (w.norm() + 1e-30)) for p, w in pairs)


OPTIONS = [
    dict(
        zip(
            ("bias_correction", "grad_averaging", "adam_w_mode", "always_adapt", "weight_decay"),
            values,
            strict=True,
        )
    )
    for values in product((True, False), (True, False), (True, False), (True, False), (0.0, 0.05))
]


@pytest.fixture
def small_pieces(monkeypatch):
    """Limits so low that small tensors are cut as large ones are."""
    for module in (fused, optimizer):
        monkeypatch.setattr(module, "CACHED", 50)
    for module in (foreach, apex_module):
        monkeypatch.setattr(module, "LISTED", 50)
    monkeypatch.setattr(slots, "ROW", 8)


@pytest.fixture
def apex(monkeypatch):
    """Stands in for NVIDIA's apex: its signature, its count of steps by group, and its habit of writing over gradients."""
    package, module = ModuleType("apex"), ModuleType("apex.optimizers")
    module.FusedLAMB = ApexLamb
    monkeypatch.setitem(sys.modules, "apex", package)
    monkeypatch.setitem(sys.modules, "apex.optimizers", module)


class ApexLamb(torch.optim.Optimizer):
    def __init__(
        self,
        params,
        lr=1e-3,
        bias_correction=True,
        betas=(0.9, 0.999),
        eps=1e-6,
        weight_decay=0.01,
        amsgrad=False,
        adam_w_mode=True,
        grad_averaging=True,
        set_grad_none=True,
        max_grad_norm=1.0,
        use_nvlamb=False,
    ):
        options = {"lr": lr, "bias_correction": bias_correction, "betas": betas, "eps": eps}
        super().__init__(
            params, options | {"weight_decay": weight_decay, "grad_averaging": grad_averaging}
        )
        self.adam_w_mode, self.use_nvlamb, self.max_grad_norm = (
            adam_w_mode,
            use_nvlamb,
            max_grad_norm,
        )

    def step(self):
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
            options = {k: v for k, v in group.items() if k not in ("params", "step")}
            for p in group["params"]:
                state, double = self.state[p], p.double()
                one = Reference([{"params": [double]}])
                one.state[id(double)] = (
                    group["step"] - 1,
                    state["exp_avg"].double(),
                    state["exp_avg_sq"].double(),
                )
                clip = max(1.0, float(p.grad.norm()) / self.max_grad_norm)
                kinds = {"adam_w_mode": self.adam_w_mode, "always_adapt": self.use_nvlamb}
                one._update(double, p.grad.double() / clip, **options, **kinds)
                p.grad.copy_(p - double)
                p.copy_(double)
                for key, value in zip(
                    ("exp_avg", "exp_avg_sq"), one.state[id(double)][1:], strict=True
                ):
                    state[key].copy_(value)


@pytest.mark.parametrize("path", PATHS)
def test_the_first_step_is_bias_corrected_and_small_gradients_are_not_scaled_up(path):
    """By hand: m / sqrt(v) is the gradient's sign, and without weight decay the ratio is 1."""
    gradient = torch.tensor([0.03, -0.04])  # norm 0.05
    found = torch.nn.Parameter(torch.tensor([1.0, 1.0]))
    found.grad = gradient.clone()
    optimizer = Lamb([found], lr=0.1, weight_decay=0.0, max_grad_norm=1.0, path=path)
    optimizer.step()
    torch.testing.assert_close(found.detach(), torch.tensor([0.9, 1.1]), atol=1e-5, rtol=0)
    moment = optimizer.state[found]["exp_avg"]
    torch.testing.assert_close(moment, 0.1 * gradient, atol=1e-9, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("max_grad_norm", [None, 1.0])
def test_a_hundred_steps_of_every_combination_are_the_formula(max_grad_norm):
    for options in OPTIONS:
        start = parameters(shapes=[(33, 16), (5, 7), (9,)])
        wanted = run_reference(
            [{"params": range(len(start)), "lr": 0.01, **options}], start, 100, max_grad_norm
        )
        for path in PATHS:
            params = copy.deepcopy(start)
            run(
                Lamb(params, lr=0.01, max_grad_norm=max_grad_norm, path=path, **options),
                params,
                100,
            )
            assert deviation(params, wanted) < 1e-6, (path, options)


@pytest.mark.usefixtures("small_pieces", "apex")
@pytest.mark.parametrize("path", [*PATHS, "apex"])
@pytest.mark.parametrize("options", OPTIONS[::3])
def test_large_tensors_in_pieces_are_the_formula(path, options):
    params = parameters()
    wanted = run_reference([{"params": range(len(params)), "lr": 0.01, **options}], params, 5)
    run(Lamb(params, lr=0.01, path=path, **options), params, 5)
    assert deviation(params, wanted) < 1e-6


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("betas", [(0.0, 0.5), (0.5, 0.0)])
def test_trust_clamp_and_other_betas(path, betas):
    options = {"lr": 0.1, "betas": betas, "eps": 1e-3, "trust_clamp": (0.5, 1.2)}
    params = parameters()
    params[0].data *= 100
    params[1].data *= 1e-3
    wanted = run_reference([{"params": range(len(params)), **options}], params, 5)
    run(Lamb(params, path=path, **options), params, 5)
    assert deviation(params, wanted) < 1e-6
    # It does make a difference.
    assert (
        deviation(
            params,
            run_reference(
                [{"params": range(len(params)), **options, "trust_clamp": None}], parameters(), 5
            ),
        )
        > 0.01
    )


def test_always_adapt_is_lamb_without_exemptions_as_timm_has_it():
    """timm's form: every tensor is adapted, decayed or not, and the clipping is by the global norm."""
    params, copies = parameters(), [p.detach().double() for p in parameters()]
    optimizer = Lamb(params, lr=0.02, weight_decay=0.0, always_adapt=True)
    moments = [(torch.zeros_like(c), torch.zeros_like(c)) for c in copies]
    for step in range(1, 21):
        run(optimizer, params, 1, first=step)
        grads = [g.double() for g in tensors(100 + step)]
        norm = torch.cat([g.flatten() for g in grads]).norm()
        for c, g, (m, v) in zip(copies, grads, moments, strict=True):
            g = g / torch.where(norm > 1.0, norm, 1.0)
            m.lerp_(g, 0.1)
            v.lerp_(g * g, 0.001)
            update = (m / (1 - 0.9**step)) / (v.sqrt() / math.sqrt(1 - 0.999**step) + 1e-6)
            c.sub_(update * (c.norm() / update.norm()), alpha=0.02)
    assert deviation(params, copies) < 1e-6


@pytest.mark.parametrize("path", PATHS)
def test_groups_have_options_of_their_own_and_may_come_later(path):
    params = parameters()
    first = {"params": [0, 2], "lr": 0.03, "weight_decay": 0.0, "betas": (0.8, 0.9)}
    second = {"params": [1, 3, 4, 5], "lr": 0.01, "weight_decay": 0.1, "grad_averaging": False}
    wanted = run_reference(
        [first, second], params, 8, missing={(s, i) for s in range(3) for i in second["params"]}
    )
    first, second = (
        {**group, "params": [params[i] for i in group["params"]]} for group in (first, second)
    )
    optimizer = Lamb([first], path=path)
    run(optimizer, params, 3)
    optimizer.add_param_group(second)
    run(optimizer, params, 5, first=3)
    assert deviation(params, wanted) < 1e-6


@pytest.mark.usefixtures("apex")
@pytest.mark.parametrize("path", [*PATHS, "apex"])
def test_parameters_without_gradients_stay_and_count_no_steps(path):
    params = parameters()
    missing = {(0, 1), (1, 1), (2, 0), (2, 3), *((step, 2) for step in range(6))}
    before = params[2].detach().clone()
    wanted = run_reference([{"params": range(len(params)), "lr": 0.01}], params, 6, missing=missing)
    optimizer = Lamb(params, lr=0.01, path=path)
    run(optimizer, params, 6, missing=missing)
    assert deviation(params, wanted) < 1e-6
    assert torch.equal(params[2], before)
    assert params[2] not in optimizer.state
    assert [float(optimizer.state[p]["step"]) for p in (params[0], params[1], params[4])] == [
        5,
        4,
        6,
    ]
    optimizer.zero_grad(set_to_none=True)
    after = copy.deepcopy(params)
    optimizer.step()
    assert all(map(torch.equal, params, after))


@pytest.mark.parametrize("path", PATHS)
def test_zeros_and_empty_tensors_make_no_nan(path):
    shapes = [(3, 4), (3, 4), (0,), (0, 5), (2, 2)]
    params = parameters(shapes=shapes)
    params[0].data.zero_()
    optimizer = Lamb(params, lr=0.1, weight_decay=0.0, always_adapt=True, path=path)
    run(optimizer, params, 1, scale=1.0, missing={(0, 1)})
    # A parameter of length 0 takes Adam's step.
    torch.testing.assert_close(params[0].abs(), torch.full((3, 4), 0.1), rtol=1e-4, atol=0)
    params[1].grad = torch.zeros(3, 4)
    before = params[1].detach().clone()
    optimizer.step()
    assert torch.equal(params[1], before)
    for p in params:
        p.grad = torch.zeros_like(p)
    optimizer.step()
    assert all(p.isfinite().all() for p in params)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.usefixtures("small_pieces")
def test_layout_in_memory_changes_nothing(path):
    wanted, plain = parameters(shapes=[(12, 8), (8, 12), (6, 5), (4, 3, 2, 2)]), None
    # Transposed; with gaps; a column of another tensor; channels last.
    values = [p.detach().clone() for p in wanted]
    odd = [
        torch.nn.Parameter(values[0].t().contiguous().t()),
        torch.nn.Parameter(torch.zeros(8, 24)[:, ::2].copy_(values[1])),
        torch.nn.Parameter(torch.zeros(5, 6, 3)[:, :, 1].copy_(values[2].t()).t()),
        torch.nn.Parameter(values[3].contiguous(memory_format=torch.channels_last)),
    ]
    assert not any(p.is_contiguous() for p in odd)
    plain = Lamb(wanted, lr=0.05, path="loop")
    optimizer = Lamb(odd, lr=0.05, path=path)
    for step in range(4):
        for grad, p, o in zip(tensors(step, [p.shape for p in wanted]), wanted, odd, strict=True):
            p.grad = grad
            # Of other strides than the parameter, every other time.
            o.grad = grad.clone() if step % 2 else torch.empty_like(o).copy_(grad)
        plain.step()
        optimizer.step()
    assert deviation(odd, wanted) < 1e-6


@pytest.mark.usefixtures("apex")
@pytest.mark.parametrize("path", [*PATHS, "apex"])
@pytest.mark.parametrize("options", [{}, {"adam_w_mode": False}, {"max_grad_norm": None}])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_callers_gradients_are_left_as_they_are(path, options, dtype):
    params = [torch.nn.Parameter(p.detach().to(dtype)) for p in parameters()]
    optimizer = Lamb(params, path=path, **options)
    for p, grad in zip(params, tensors(1), strict=True):
        p.grad = grad.to(dtype) * 10
    before = [p.grad.clone() for p in params]
    optimizer.step()
    assert all(torch.equal(p.grad, grad) for p, grad in zip(params, before, strict=True))


@pytest.mark.parametrize("path", PATHS)
def test_norms_of_millions_of_elements_are_exact(path):
    p = torch.nn.Parameter(torch.randn(3_000_000, 1, generator=torch.Generator().manual_seed(0)))
    wanted = run_reference([{"params": [0], "lr": 1.0}], [p], 1)
    run(Lamb([p], lr=1.0, path=path), [p], 1)
    assert deviation([p], wanted) < 1e-6


@pytest.mark.usefixtures("apex")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("path", [*PATHS, "apex"])
def test_low_precision_parameters_collect_their_steps_in_fp32(path, dtype):
    params = [torch.nn.Parameter(p.detach().to(dtype)) for p in parameters()]
    copies = [p.detach().double() for p in params]
    reference = Reference([{"params": copies, "lr": 1e-4, "weight_decay": 0.02}])
    optimizer = Lamb(params, lr=1e-4, weight_decay=0.02, path=path)
    for step in range(20):
        for p, grad in zip(params, tensors(step), strict=True):
            p.grad = grad.to(dtype)
        reference.step({id(c): p.grad for c, p in zip(copies, params, strict=True)})
        optimizer.step()
    masters = [optimizer.state[p]["master"] for p in params]
    assert {value.dtype for p in params for value in optimizer.state[p].values()} == {torch.float32}
    # No single step of 1e-4 moves a bf16 weight.
    assert deviation(masters, copies) < 1e-6
    assert all(torch.equal(p, master.to(dtype)) for p, master in zip(params, masters, strict=True))


def test_double_precision_is_kept():
    params = [torch.nn.Parameter(p.detach().double()) for p in parameters()]
    wanted = run_reference([{"params": range(len(params))}], params, 10)
    run(Lamb(params), params, 10)
    assert deviation(params, wanted) < 1e-12


@pytest.mark.usefixtures("apex")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("first", "second"), [(a, b) for a in [*PATHS, "apex"] for b in [*PATHS, "apex"]]
)
def test_state_moves_from_path_to_path_and_through_a_file(first, second, dtype):
    start = [torch.nn.Parameter(p.detach().to(dtype)) for p in parameters()]
    straight, moved = copy.deepcopy(start), copy.deepcopy(start)
    undisturbed = Lamb(straight, lr=0.01, path="loop")
    run(undisturbed, straight, 6)
    optimizer = Lamb(moved, lr=0.01, path=first)
    run(optimizer, moved, 3)
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    other = Lamb(moved, lr=0.5, path=second)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert other.param_groups[0]["lr"] == 0.01
    run(other, moved, 3, first=3)
    key = "exp_avg" if dtype == torch.float32 else "master"
    assert set(other.state[moved[0]]) == {"step", "exp_avg", "exp_avg_sq"} | (
        {"master"} if dtype != torch.float32 else set()
    )
    for p, q in zip(straight, moved, strict=True):
        assert float(other.state[q]["step"]) == 6
        assert deviation([other.state[q][key]], [undisturbed.state[p][key]]) < 1e-5
    assert deviation(moved, straight) < (1e-6 if dtype == torch.float32 else 0.01)


@pytest.mark.parametrize("path", PATHS)
def test_loading_is_exact_for_low_precision(path):
    params = [torch.nn.Parameter(p.detach().bfloat16()) for p in parameters()]
    params[0].data = params[0].data.t()  # and for another layout
    optimizer = Lamb(params, lr=0.01, path=path)
    run(optimizer, params, 3)
    again = copy.deepcopy(params)
    loaded = Lamb(again, path=path)
    loaded.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    run(optimizer, params, 3, first=3)
    run(loaded, again, 3, first=3)
    for p, q in zip(params, again, strict=True):
        assert torch.equal(p, q)
        assert all(
            torch.equal(optimizer.state[p][key], loaded.state[q][key]) for key in optimizer.state[p]
        )


def test_state_of_adamw_and_of_another_precision_is_taken():
    params = parameters()
    adamw = torch.optim.AdamW(params, lr=0.01)
    run(adamw, params, 2)
    optimizer = Lamb(params)
    optimizer.load_state_dict(adamw.state_dict())
    run(optimizer, params, 1, first=2)
    assert float(optimizer.state[params[0]]["step"]) == 3
    low = [torch.nn.Parameter(p.detach().bfloat16()) for p in params]
    narrow = Lamb(low)
    narrow.load_state_dict(optimizer.state_dict())
    run(narrow, low, 1)
    assert narrow.state[low[0]]["master"].dtype == torch.float32
    optimizer.load_state_dict(narrow.state_dict())
    assert "master" not in optimizer.state[params[0]]


def test_a_copied_optimizer_goes_on_alike():
    params = parameters()
    optimizer = Lamb(params, lr=0.01, max_grad_norm=0.5, path="fused")
    run(optimizer, params, 2)
    twin = copy.deepcopy(optimizer)
    copies = twin.param_groups[0]["params"]
    run(optimizer, params, 2)
    run(twin, copies, 2)
    assert (twin.max_grad_norm, twin.path) == (0.5, "fused")
    assert all(map(torch.equal, params, copies))


@pytest.mark.parametrize("unscaled", [True, False])
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("max_grad_norm", [None, 1.0])
def test_scaled_gradients_step_as_plain_ones_and_overflow_changes_nothing(
    path, max_grad_norm, unscaled
):
    params, plain = parameters(), parameters()
    optimizer = Lamb(params, lr=0.01, max_grad_norm=max_grad_norm, path=path)
    other = Lamb(plain, lr=0.01, max_grad_norm=max_grad_norm, path=path)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step in range(5):
        factors = tensors(step)
        for ps, scale in ((plain, None), (params, scaler)):
            loss = sum((p * factor).sum() for p, factor in zip(ps, factors, strict=True))
            for p in ps:
                p.grad = None
            (loss if scale is None else scaler.scale(loss)).backward()
        if step in (0, 3):
            params[1].grad[0] = math.inf
            params[0].grad[0] = math.nan
        before, state = copy.deepcopy(params), copy.deepcopy(optimizer.state_dict()["state"])
        if unscaled:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        if step in (0, 3):
            assert all(map(torch.equal, params, before))
            for number, values in optimizer.state_dict()["state"].items():
                assert all(torch.equal(value, state[number][key]) for key, value in values.items())
        else:
            other.step()
            assert deviation(params, plain) < 1e-6
    assert float(optimizer.state[params[0]]["step"]) == 3


class NothingIsRead(TorchDispatchMode):
    """Refuses to read a tensor's number, for which Python would wait on a GPU."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        assert function is not torch.ops.aten._local_scalar_dense.default
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("options", OPTIONS)
def test_overflow_that_only_the_device_knows_changes_nothing(options):
    """What a GPU does, where nobody waits for the flag; here the flag is a tensor of the CPU."""
    params, plain = parameters(), parameters()
    optimizer, other = (Lamb(ps, lr=0.01, path="foreach", **options) for ps in (params, plain))
    scale = torch.tensor(1024.0)
    for step in range(4):
        for p, q, grad in zip(params, plain, tensors(step), strict=True):
            p.grad, q.grad = grad * 1024, grad
        if step % 2 == 0:
            params[1].grad[0], params[0].grad[1] = math.inf, math.nan
        before = copy.deepcopy(params)
        with torch.no_grad(), NothingIsRead():
            optimizer._update(scale, torch.tensor(step % 2 == 0))
        if step % 2 == 0:
            assert all(map(torch.equal, params, before))
        else:
            other.step()
    assert deviation(params, plain) < 1e-6
    for p, q in zip(params, plain, strict=True):
        assert deviation(optimizer.state[p].values(), other.state[q].values()) < 1e-6


def test_adam_diverges_where_lamb_does_not():
    """A quadratic whose tensors differ in length by a factor of a million, at one learning rate."""
    scales = [1e-3, 1.0, 1e3]

    def loss_after(kind, **options):
        params = [torch.nn.Parameter(torch.full((4, 4), 3 * scale)) for scale in scales]
        optimizer = kind(params, lr=0.1, **options)
        for _ in range(200):
            loss = sum(
                (((p - scale) / scale) ** 2).sum() for p, scale in zip(params, scales, strict=True)
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            optimizer.param_groups[0]["lr"] *= 0.98
        return loss.item()

    start = 3 * 16 * 4.0
    assert loss_after(Lamb, weight_decay=0.0, always_adapt=True, max_grad_norm=None) < 0.01 * start
    assert loss_after(torch.optim.Adam) > 0.3 * start


def test_sparse_gradients_are_refused_before_anything_changes():
    params = [torch.nn.Parameter(torch.ones(4, 2)), torch.nn.Parameter(torch.ones(4, 2))]
    optimizer = Lamb(params)
    params[0].grad, params[1].grad = torch.ones(4, 2), torch.ones(4, 2).to_sparse()
    with pytest.raises(RuntimeError, match="sparse=False"):
        optimizer.step()
    assert torch.equal(params[0], torch.ones(4, 2))
    assert not optimizer.state


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"lr": -1.0}, "lr is -1.0"),
        ({"lr": math.nan}, "lr is nan"),
        ({"eps": -1e-6}, "eps is"),
        ({"weight_decay": -0.1}, "weight_decay is -0.1"),
        ({"betas": (0.9, 1.0)}, "betas is"),
        ({"betas": (-0.1, 0.9)}, "betas is"),
        ({"max_grad_norm": 0.0}, "max_grad_norm is 0.0"),
        ({"trust_clamp": (2.0, 1.0)}, "trust_clamp is"),
        ({"path": "fastest"}, "path is 'fastest'"),
        ({"path": "apex"}, "NVIDIA's apex"),
    ],
)
def test_bad_options_are_said_in_one_line(options, said):
    with pytest.raises(ValueError, match=said) as caught:
        Lamb(parameters(), **options)
    assert "\n" not in str(caught.value)


def test_bad_groups_leave_the_optimizer_as_it_was():
    params = parameters()
    optimizer = Lamb(params[:1])
    for group in (
        {"params": params[1:], "lr": -1.0},
        {"params": [torch.zeros(2, dtype=torch.complex64)]},
    ):
        with pytest.raises(ValueError, match=r"lr is -1.0|complex64"):
            optimizer.add_param_group(group)
    assert len(optimizer.param_groups) == 1


@pytest.mark.usefixtures("apex")
def test_apex_knows_no_clamp():
    with pytest.raises(ValueError, match="trust_clamp is not known to apex"):
        Lamb(parameters(), path="apex", trust_clamp=(0.1, 10.0))


def another_kernel(params, grads, *_, **__):
    torch._foreach_sub_(params, grads)


@pytest.mark.parametrize("kernel", [None, another_kernel])
def test_a_torch_with_another_kernel_falls_back_to_the_loop(monkeypatch, kernel):
    if kernel is None:
        monkeypatch.delattr(torch, "_fused_adam_")
    else:
        monkeypatch.setattr(torch, "_fused_adam_", kernel)
    fused.kernel_known.cache_clear()
    try:
        params = parameters()
        wanted = run_reference([{"params": range(len(params))}], params, 3)
        run(Lamb(params), params, 3)
        assert deviation(params, wanted) < 1e-6
        with pytest.raises(ValueError, match="does not know"):
            Lamb(params, path="fused")
    finally:
        fused.kernel_known.cache_clear()


def test_a_closure_is_called_with_gradients_on():
    p = torch.nn.Parameter(torch.ones(2, 2))
    optimizer = Lamb([p])

    def closure():
        loss = (p**2).sum()
        loss.backward()
        return loss.item()

    assert optimizer.step(closure) == 4
    assert (p < 1).all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("path", ["loop", "foreach", None])
def test_a_gpu_takes_the_same_steps_and_is_not_waited_for(path):
    params = [torch.nn.Parameter(p.detach().cuda()) for p in parameters()]
    wanted = run_reference([{"params": range(len(params)), "lr": 0.01}], parameters(), 5)
    optimizer = Lamb(params, lr=0.01, path=path)
    for step in range(6):
        # Twice the first: the first overflows.
        for p, grad in zip(params, tensors(100 + max(0, step - 1)), strict=True):
            p.grad = grad.cuda() * 1024 if step else torch.full_like(p, math.nan)
        optimizer.grad_scale = torch.tensor(1024.0, device="cuda")
        optimizer.found_inf = torch.tensor(float(step == 0), device="cuda")
        torch.cuda.set_sync_debug_mode("default" if path == "loop" else "error")
        try:
            optimizer.step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert deviation([p.cpu() for p in params], wanted) < 1e-6


SHARDED = [(5, 4), (1, 3), (4, 6), (3,), (7, 2)]


def sharded(values, mesh):
    """By rows (uneven, and one row for two ranks), by columns, whole on each, and one that is no DTensor."""
    placements = [Shard(0), Shard(0), Shard(1), Replicate(), None]
    return [
        value if placement is None else distribute_tensor(value, mesh, [placement])
        for value, placement in zip(values, placements, strict=True)
    ]


def check_sharded(rank, ranks, folder):
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", f"file://{folder}/meet", rank=rank, world_size=ranks
    )
    check_on_mesh(ranks)
    # What still holds the group when it goes aborts the process now and then.
    gc.collect()
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def check_on_mesh(ranks):
    mesh = init_device_mesh("cpu", (ranks,))
    for path in PATHS:
        params = [torch.nn.Parameter(value) for value in sharded(tensors(0, SHARDED), mesh)]
        whole = parameters(0, SHARDED)
        wanted = run_reference([{"params": range(len(whole)), "lr": 0.05}], whole, 5)
        optimizer = Lamb(params, lr=0.05, path=path)
        for step in range(5):
            for p, grad in zip(params, sharded(tensors(100 + step, SHARDED), mesh), strict=True):
                p.grad = grad
            optimizer.step()
            if step == 2:
                saved = copy.deepcopy(optimizer.state_dict())
                optimizer = Lamb(params, path=path)
                optimizer.load_state_dict(saved)
        assert isinstance(optimizer.state[params[0]]["exp_avg"], DTensor)
        full = [p.full_tensor() if isinstance(p, DTensor) else p for p in params]
        assert deviation([p.detach() for p in full], wanted) < 1e-6, path


@pytest.mark.slow
def test_sharded_parameters_step_as_whole_ones(tmp_path):
    processes = torch.multiprocessing.start_processes(
        check_sharded, (2, str(tmp_path)), 2, join=False
    )
    end = time.monotonic() + 60
    try:
        while not processes.join(timeout=1):
            assert time.monotonic() < end, "the ranks wait for each other"
    finally:
        for process in processes.processes:
            process.kill()

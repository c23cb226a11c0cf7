"""Milliseconds an optimizer step takes on BERT-base's parameters: torch's AdamW, every path of Lamb, and Lamb as others have it.

python benchmarks/lamb.py

One thread, one process, turn by turn, so that whatever else the machine does falls on all. Wants an
idle machine and 10 GB.
"""

import argparse
import importlib.util
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from statistics import median

import torch
from tables import keyed, save_results
from torch import Tensor

from distillkit.measure.report import table
from distillkit.training.lamb import Lamb

# What another learning rate or decay would be a difference of.
OPTIONS = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-6}
DECAY = 0.01


def bert_base() -> list[tuple[int, ...]]:
    """Return the shapes of BERT-base: 199 tensors, 109.5 million elements."""
    width, inner = 768, 3072
    norm = [(width,), (width,)]
    attention = [(width, width), (width,)] * 4 + norm
    layer = [*attention, (inner, width), (inner,), (width, inner), (width,), *norm]
    return [(30522, width), (512, width), (2, width), *norm, *layer * 12, (width, width), (width,)]


def parameters(seed: int = 0) -> list[torch.nn.Parameter]:
    """Make parameters of BERT-base's shapes and usual size."""
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.nn.Parameter(torch.randn(shape, generator=generator) * 0.02) for shape in bert_base()
    ]


def groups(params: list[torch.nn.Parameter]) -> list[dict[str, object]]:
    """Matrices decay, vectors do not."""
    return [
        {"params": [p for p in params if p.ndim > 1], "weight_decay": DECAY},
        {"params": [p for p in params if p.ndim <= 1], "weight_decay": 0.0},
    ]


class TimmForm(torch.optim.Optimizer):
    """LAMB in the operations of timm's, which cannot be installed beside us: the norm by tensors on the device, no fused kernel."""

    def __init__(self, params: list[dict[str, object]]) -> None:
        super().__init__(params, {**OPTIONS, "step": 0})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Update every parameter."""
        every = [p.grad for group in self.param_groups for p in group["params"]]
        norm = torch.linalg.vector_norm(
            torch.stack([torch.linalg.vector_norm(grad) for grad in every])
        )
        clip = norm.clamp(min=1.0)
        for group in self.param_groups:
            group["step"] += 1
            beta1, beta2 = group["betas"]
            corrections = [1 - beta ** group["step"] for beta in group["betas"]]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["m"], state["v"] = torch.zeros_like(p), torch.zeros_like(p)
                grad = p.grad.div_(clip)
                state["m"].mul_(beta1).add_(grad, alpha=1 - beta1)
                state["v"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
                root = (state["v"].sqrt() / corrections[1] ** 0.5).add_(group["eps"])
                update = (state["m"] / corrections[0]).div_(root)
                if group["weight_decay"]:
                    update.add_(p, alpha=group["weight_decay"])
                    length, size = p.norm(2.0), update.norm(2.0)
                    update.mul_(
                        torch.where(
                            (length > 0) & (size > 0), length / size, torch.ones_like(length)
                        )
                    )
                p.add_(update, alpha=-group["lr"])


def contenders(params: list[torch.nn.Parameter]) -> dict[str, Callable[[], torch.optim.Optimizer]]:
    """Return what is timed, by name."""
    found: dict[str, Callable[[], torch.optim.Optimizer]] = {
        "torch AdamW, fused": lambda: torch.optim.AdamW(groups(params), **OPTIONS, fused=True),  # type: ignore[arg-type]
        "torch AdamW, foreach": lambda: torch.optim.AdamW(groups(params), **OPTIONS, foreach=True),  # type: ignore[arg-type]
        "Lamb, as the loop runs it: clipped outside": lambda: Lamb(
            groups(params), **OPTIONS, max_grad_norm=None
        ),  # type: ignore[arg-type]
        "Lamb": lambda: Lamb(groups(params), **OPTIONS),  # type: ignore[arg-type]
        "Lamb, foreach": lambda: Lamb(groups(params), **OPTIONS, path="foreach"),  # type: ignore[arg-type]
        "Lamb, loop": lambda: Lamb(groups(params), **OPTIONS, path="loop"),  # type: ignore[arg-type]
        "timm's form": lambda: TimmForm(groups(params)),
    }
    if importlib.util.find_spec("pytorch_optimizer"):
        from pytorch_optimizer import Lamb as TheirLamb

        found["pytorch_optimizer Lamb"] = lambda: TheirLamb(groups(params), **OPTIONS)
    else:
        sys.stderr.write("pytorch_optimizer is not installed: left out\n")
    return found


def gradients(params: list[torch.nn.Parameter], step: int) -> Iterator[Tensor]:
    """Draw gradients whose global norm is above 1: clipping has something to do."""
    generator = torch.Generator().manual_seed(1000 + step)
    return (torch.randn(p.shape, generator=generator) * 1e-3 for p in params)


def reference(steps: int) -> list[Tensor]:
    """Return the parameters after some steps of the formula in float64."""
    params = [p.detach().double() for p in parameters()]
    moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in params]
    (beta1, beta2), eps, lr = (0.9, 0.999), 1e-6, 1e-3
    for step in range(1, steps + 1):
        norm = sum(float(grad.double().square().sum()) for grad in gradients(params, step)) ** 0.5  # type: ignore[arg-type]
        for p, (m, v), grad in zip(params, moments, gradients(params, step), strict=True):  # type: ignore[arg-type]
            g = grad.double() / max(1.0, norm)
            m.mul_(beta1).add_(g, alpha=1 - beta1)
            v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
            update = (m / (1 - beta1**step)) / ((v / (1 - beta2**step)).sqrt() + eps)
            if p.ndim > 1:
                update += DECAY * p
                update *= p.square().sum().sqrt() / update.square().sum().sqrt()
            p -= lr * update
    return [p.float() for p in params]


def deviation(
    start: list[torch.nn.Parameter], found: list[torch.nn.Parameter], wanted: list[Tensor]
) -> float:
    """Return the largest distance of what a tensor has moved from what it should have, over the latter's length."""
    pairs = [
        ((p.detach() - w).double(), (w - s.detach()).double())
        for s, p, w in zip(start, found, wanted, strict=True)
    ]
    return max(
        float(error.square().sum().sqrt() / moved.square().sum().sqrt()) for error, moved in pairs
    )


def timed(turns: int) -> dict[str, list[float]]:
    """Return the milliseconds of each contender's steps, turn by turn."""
    params = parameters()
    optimizers = {name: make() for name, make in contenders(params).items()}
    drawn = list(gradients(params, 0))
    for p in params:
        p.grad = torch.empty_like(p)
    times: dict[str, list[float]] = {name: [] for name in optimizers}
    for turn in range(turns + 1):
        for name, optimizer in optimizers.items():
            for p, grad in zip(params, drawn, strict=True):
                p.grad.copy_(grad)  # type: ignore[union-attr]  # some write over it
            start = time.perf_counter()
            optimizer.step()
            if turn:  # the first makes its state
                times[name].append((time.perf_counter() - start) * 1e3)
    return times


def errors(names: Iterable[str], steps: int) -> dict[str, str]:
    """Return how far from the formula each LAMB is after some steps, relative to the way that a tensor has gone."""
    wanted, start, found = reference(steps), parameters(), {}
    for name in names:
        params = parameters()
        optimizer = contenders(params)[name]()
        for step in range(1, steps + 1):
            for p, grad in zip(params, gradients(params, step), strict=True):
                p.grad = grad
            optimizer.step()
        found[name] = f"{deviation(start, params, wanted):.1e}"
    return found


def main() -> int:
    """Time the turns, compare, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument(
        "--steps",
        type=int,
        default=7,
        help="steps before the comparison with the formula; 0: no comparison",
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    times = timed(options.turns)
    # Without its own clipping it follows another formula.
    names = [name for name in times if "AdamW" not in name and "outside" not in name]
    off = errors(names, options.steps) if options.steps else {}
    best = {name: min(values) for name, values in times.items()}
    lines = [
        [
            "optimizer",
            "ms, best turn",
            "ms, median",
            "x AdamW fused",
            "x faster than the loop",
            "off the formula",
        ]
    ]
    for name, values in times.items():
        ratios = best[name] / best["torch AdamW, fused"], best["Lamb, loop"] / best[name]
        figures = [
            f"{best[name]:.0f}",
            f"{median(values):.0f}",
            *(f"{ratio:.2f}" for ratio in ratios),
        ]
        lines.append([name, *figures, off.get(name, "")])
    print(table(lines))
    save_results("lamb", "milliseconds of an optimizer's step, BERT-base shapes", [], keyed(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())

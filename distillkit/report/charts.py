"""Charts as inline SVG, styled by the page's CSS; no label lies on another."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate

from markupsafe import Markup

# Pixels at a phone's width, so that text is readable there; wider screens enlarge the whole.
WIDTH, HEIGHT = 400, 270
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 268, 10, 226
_LINE = 14  # of the labels on the right


@dataclass(frozen=True)
class Point:
    """A model in a scatter plot; `low` and `high` bound its score. No label: a small dot."""

    label: str
    x: float
    y: float
    low: float
    high: float
    own: bool = False


@dataclass(frozen=True)
class _Axis:
    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def at(self, value: float) -> float:
        low, high = self.low, self.high
        if self.log:
            low, high, value = map(math.log10, (low, high, value))
        return self.start + (value - low) / (high - low) * (self.stop - self.start)

    def ticks(self) -> list[float]:
        if self.log:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            steps = (1,) if self.high / self.low > 1000 else (1, 3)
            found = [step * 10.0**decade for decade in decades for step in steps]
        else:
            step = _step((self.high - self.low) / 5)
            first = math.ceil(self.low / step)
            found = [step * i for i in range(first, math.floor(self.high / step) + 1)]
        return [tick for tick in found if self.low <= tick <= self.high]


def scatter(points: Sequence[Point], heading: str, unit: str, score: str) -> Markup:
    """Draw scores against a cost on a logarithmic axis; labels stand in a column on the right."""
    points = [point for point in points if point.x > 0]
    if not points:
        return Markup()
    bounds = [value for p in points for value in (p.low, p.y, p.high)]
    x = _Axis(min(p.x for p in points) / 1.6, max(p.x for p in points) * 1.6, _LEFT, _RIGHT, True)
    y = _padded(bounds)
    parts = [*_axes(x, y, unit, score)]
    for p in points:
        kind = "own" if p.own else "point" if p.label else "step"
        parts.append(_line(x.at(p.x), y.at(p.low), x.at(p.x), y.at(p.high), f"bar {kind}"))
        parts.append(_dot(kind, x.at(p.x), y.at(p.y), 4 if p.label else 2))
    named = [(p.label, x.at(p.x), y.at(p.y)) for p in points if p.label]
    return _svg(heading, [*parts, *_labels(named)])


def lines(
    series: Mapping[str, Sequence[tuple[float, float, float]]],
    heading: str,
    across: str,
    up: str,
    *,
    diagonal: bool = False,
) -> Markup:
    """Draw curves, each with its name on the right.

    Args:
        series: Points by name: x, y and the radius of a dot, in pixels; 0: no dot, unless the curve has
            a single point.
        heading: Read to those who do not see the chart.
        across: Title of the x axis.
        up: Title of the y axis.
        diagonal: Both axes go from 0 to 100, and y = x is dashed.
    """
    series = {name: curve for name, curve in series.items() if curve}
    if not series:
        return Markup()
    found = [point for curve in series.values() for point in curve]
    least, most = min(x for x, *_ in found), max(x for x, *_ in found)
    x, y = _Axis(min(least, most - 1), most, _LEFT, _RIGHT), _padded([y for _, y, _ in found])
    even = []
    if diagonal:
        x, y = _Axis(0, 100, _LEFT, _RIGHT), _Axis(0, 100, _BOTTOM, _TOP)
        even = [_line(_LEFT, _BOTTOM, _RIGHT, _TOP, "even")]
    parts, named = [*_axes(x, y, across, up), *even], []
    for number, (name, curve) in enumerate(series.items()):
        alone = 3 if len(curve) == 1 else 0  # a line of one point is not seen
        places = [(x.at(a), y.at(b), max(size, alone)) for a, b, size in curve]
        drawn = " ".join(f"{a:.1f},{b:.1f}" for a, b, _ in places)
        parts.append(f'<polyline class="curve c{number}" points="{drawn}"/>')
        parts += [_dot(f"c{number}", a, b, size) for a, b, size in places if size]
        named.append((name, *places[-1][:2]))
    return _svg(heading, [*parts, *_labels(named)])


def intervals(rows: Sequence[Point], heading: str, score: str) -> Markup:
    """Draw a dot a row with its interval; `x` of a point is its score, `y` is not used."""
    bounds = [value for p in rows for value in (p.low, p.x, p.high)]
    height = 20 * len(rows) + 44
    across = _padded(bounds, (150, WIDTH - 12))
    parts = []
    for tick in across.ticks():
        parts.append(_line(across.at(tick), 4, across.at(tick), height - 40, "grid"))
        parts.append(_text(_number(tick), across.at(tick), height - 26, "middle"))
    for place, p in enumerate(rows):
        y = 16 + 20 * place
        parts.append(_text(p.label if len(p.label) < 26 else p.label[:25] + "…", 4, y + 4))
        parts.append(_line(across.at(p.low), y, across.at(p.high), y, "bar point"))
        parts.append(_dot("point", across.at(p.x), y, 4))
    parts.append(_text(score, (150 + WIDTH) / 2, height - 8, "middle"))
    return _svg(heading, parts, height)


def _padded(values: Sequence[float], pixels: tuple[float, float] = (_BOTTOM, _TOP)) -> _Axis:
    """Return a linear axis that leaves a margin on both sides of the values."""
    low, high = min(values), max(values)
    margin = 0.08 * (high - low) or max(abs(high), 1) * 0.1
    return _Axis(low - margin, high + margin, *pixels)


def _step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * one for one in (1, 2, 5, 10) if power * one >= rough)


def _axes(x: _Axis, y: _Axis, across: str, up: str) -> Iterator[str]:
    taken = -math.inf
    for tick in x.ticks():
        yield _line(x.at(tick), _TOP, x.at(tick), _BOTTOM, "grid")
        if x.at(tick) - taken > 26:
            taken = x.at(tick)
            yield _text(_number(tick), taken, _BOTTOM + 15, "middle")
    for tick in y.ticks():
        yield _line(_LEFT, y.at(tick), _RIGHT, y.at(tick), "grid")
        yield _text(_number(tick), _LEFT - 5, y.at(tick) + 4, "end")
    yield _text(across, (_LEFT + _RIGHT) / 2, _BOTTOM + 34, "middle")
    yield f'<text transform="translate(11 {(_TOP + _BOTTOM) / 2}) rotate(-90)" text-anchor="middle">{escape(up)}</text>'


def _labels(named: Iterable[tuple[str, float, float]]) -> Iterator[str]:
    """Write labels in a column, each led to its point, pushed apart where they would touch."""
    order = sorted((one for one in named if one[0]), key=lambda one: one[2])
    places = list(accumulate((y for *_, y in order), lambda above, y: max(y, above + _LINE)))
    limit: float = _BOTTOM
    for (label, x, y), below in zip(reversed(order), reversed(places), strict=True):
        place = min(below, limit)
        limit = place - _LINE
        yield _line(x, y, _RIGHT + 8, place, "lead")
        yield _text(label, _RIGHT + 11, place + 4)


def _dot(kind: str, x: float, y: float, radius: float) -> str:
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}"/>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(text: str, x: float, y: float, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _number(value: float) -> str:
    return f"{value:.10g}" if abs(value) < 1e4 else f"{value:.0e}"


def _svg(heading: str, parts: Iterable[str], height: int = HEIGHT) -> Markup:
    head = f'<svg role="img" aria-label="{escape(heading)}" viewBox="0 0 {WIDTH} {height}">'
    return Markup("".join([head, *parts, "</svg>"]))  # noqa: S704 -- every part has escaped its texts

"""What was measured, as a table and a picture."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from distillkit.measure.report import table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def bench_tables(result: Mapping[str, Any]) -> str:
    """Return Markdown tables of `bench.json`: size, start, milliseconds a call, rows a second."""
    forms, batches, threads = result["forms"], result["batch_sizes"], result["threads"]
    head = "|parameters|without embeddings|MB on disk|s to the first answer|MB in memory"
    rows = [f"{head}|p50 ms|p95 ms|p99 ms".split("|")]
    one = f"{threads[0]} x 1"
    for form in forms:
        size, taken = form["parameters"], form["speed"].get(one)
        rows.append(
            [
                form["name"],
                *(f"{size[key]:,}" if size else "" for key in ("total", "without_embeddings")),
                "" if form["megabytes"] is None else f"{form['megabytes']:.1f}",
                f"{form['start_seconds']:.2f}",
                f"{form['peak_megabytes']:,.0f}",
                *(f"{taken[key]:.3f}" if taken else "" for key in ("p50", "p95", "p99")),
            ]
        )
    calls = [(n, size) for n in threads for size in batches]
    titles = [f"{n} thread{'s' * (n > 1)}, batch {size}" for n, size in calls]
    counts = [["rows a second", *titles]]
    for form in forms:
        rates = (_rate(form, forms[-1], f"{n} x {size}") for n, size in calls)
        counts.append([form["name"], *rates])
    return f"{table(rows)}\n\n{table(counts)}\n\nIn brackets: times {forms[-1]['name']}."


def _rate(form: Mapping[str, Any], against: Mapping[str, Any], call: str) -> str:
    rate, base = form["speed"][call]["rows_per_second"], against["speed"][call]["rows_per_second"]
    return f"{rate:,.0f}" + ("" if form is against else f" ({rate / base:,.1f})")


def draw_bench(result: Mapping[str, Any], figure: "Figure") -> None:
    """Draw rows a second against rows a call: a line a form, a panel a number of threads."""
    batches, threads = result["batch_sizes"], result["threads"]
    panels = figure.subplots(1, len(threads), sharey=True, squeeze=False)[0]
    for count, panel in zip(threads, panels, strict=True):
        for form in result["forms"]:
            rates = [form["speed"][f"{count} x {size}"]["rows_per_second"] for size in batches]
            panel.plot(batches, rates, marker="o", markersize=4, label=form["name"])
        panel.set(
            xscale="log", yscale="log", xlabel=f"rows a call, {count} thread{'s' * (count > 1)}"
        )
        panel.set_xticks(batches, [str(size) for size in batches])
        panel.set_xticks([], minor=True)  # whose labels would stand over these
        panel.grid(color="0.9")
        panel.set_axisbelow(True)
    panels[0].set_ylabel("rows a second")
    figure.suptitle(f"Speed on {result['rows']:,} rows of {result['source']}", fontsize=10)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper", fontsize=8)

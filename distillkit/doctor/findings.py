"""What a check found, and the table of all findings."""

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Severity = Literal["error", "warning", "fine"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "fine")


@dataclass(frozen=True)
class Finding:
    """One check's answer.

    Args:
        check: Name of the check.
        severity: `error`: a run would be wasted; `warning`: it would be worse than it could be;
            `fine`.
        seen: What was seen, with its numbers, in one line.
        do: What to do about it, in one line; empty if there is nothing to do.
        metrics: The numbers alone; shares are 0 to 1.
    """

    check: str
    severity: Severity
    seen: str
    do: str = ""
    metrics: dict[str, Any] = field(default_factory=dict)


def finding(
    check: str, severity: Severity, seen: str, do: str, metrics: dict[str, Any] | None = None
) -> Finding:
    """Return a finding; one that is fine has nothing to do."""
    return Finding(check, severity, seen, "" if severity == "fine" else do, metrics or {})


def graded(value: float, warning: float, error: float = float("inf")) -> Severity:
    """Grade a number that is worse the larger it is.

    >>> graded(0.02, 0.01, 0.1)
    'warning'
    """
    return "error" if value >= error else "warning" if value >= warning else "fine"


def percent(share: float) -> str:
    """Write a share with one digit after the point, two below a hundredth.

    >>> percent(0.123), percent(0.0023)
    ('12.3 %', '0.23 %')
    """
    return f"{100 * share:.{1 if share >= 0.01 or not share else 2}f} %"


def findings_table(report: Mapping[str, Any], columns: int | None = None) -> str:
    """Lay a report out for reading, the worst first; what to do stands below what was seen.

    Args:
        report: What `examine.doctor` returns.
        columns: Of the terminal; None: lines are as long as they are.
    """
    findings = sorted(report["findings"], key=lambda one: SEVERITIES.index(one["severity"]))
    width = max((len(one["check"]) for one in findings), default=0)
    lines, indent = [], " " * (width + 11)
    for one in findings:
        lines.append(f"{one['severity']:<8} {one['check']:<{width}}  {one['seen']}")
        if one["do"]:
            lines.append(f"{indent}-> {one['do']}")
    lines += [f"not checked: {what}" for what in report["not_checked"]]
    if columns is not None:
        cut = (
            textwrap.fill(line, max(columns, 60), subsequent_indent=indent, break_on_hyphens=False)
            for line in lines
        )
        lines = list(cut)
    return "\n".join(lines)

"""What a check found, said in two lines, and the table of all findings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Severity = Literal["error", "warning", "fine"]
_ORDER: tuple[Severity, ...] = ("error", "warning", "fine")


@dataclass(frozen=True)
class Finding:
    """One check's answer.

    Args:
        check: Name of the check.
        severity: `error`: a run would be wasted; `warning`: it would be worse than it could be;
            `fine`.
        seen: What was seen, with the figure, in one line.
        do: What to do about it, in one line; empty where nothing has to be done.
        figures: The figures alone; shares are 0 to 1.
    """

    check: str
    severity: Severity
    seen: str
    do: str = ""
    figures: dict[str, Any] = field(default_factory=dict)


def graded(value: float, warning: float, error: float = float("inf")) -> Severity:
    """Grade a figure that is the worse the larger it is.

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


def findings_table(report: Mapping[str, Any]) -> str:
    """Lay a report out for reading, the worst first; what to do stands below what was seen.

    Args:
        report: What `examine.doctor` returns.
    """
    findings = sorted(report["findings"], key=lambda finding: _ORDER.index(finding["severity"]))
    width = max((len(finding["check"]) for finding in findings), default=0)
    lines = []
    for finding in findings:
        lines.append(f"{finding['severity']:<8} {finding['check']:<{width}}  {finding['seen']}")
        if finding["do"]:
            lines.append(f"{'':<8} {'':<{width}}  -> {finding['do']}")
    return "\n".join([*lines, *(f"not checked: {what}" for what in report["not_checked"])])

"""`distillkit report`: a finished run as one HTML file that needs no network."""

from distillkit.report.page import write_report

__all__ = ["write_report"]

"""What labelled rows that training has not seen tell of a bundle's confidence."""

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from distillkit.data.content import texts_of
from distillkit.data.gold import gold_of
from distillkit.measure.statistics import coverage_floors, fit_temperature

if TYPE_CHECKING:
    from distillkit.runtime import Predictor


def calibrate(bundle: "Predictor", dev: pa.Table) -> dict[str, Any]:
    """Fit on dev what a bundle's manifest keeps of confidence.

    Args:
        bundle: Of a classification; of any other task nothing is fitted.
        dev: Labelled rows.

    Returns:
        `temperature` and `coverage` of `runtime.bundle.Manifest`.
    """
    if bundle.task != "classification":
        return {}
    logits, gold = bundle.logits(*texts_of(dev)), gold_of(dev, bundle.labels, "classification")
    temperature = fit_temperature(logits, gold)
    return {"temperature": temperature, "coverage": coverage_floors(logits / temperature, gold)}

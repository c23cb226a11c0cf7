"""Infilling: words masked and filled in by a masked language model."""

from pathlib import Path

from distillkit.augment.corpus import Lexicon
from distillkit.augment.method import Method, Preparation
from distillkit.augment.rules import Variation
from distillkit.recipe import AugmentConfig


def _model(config: AugmentConfig, teacher: str) -> tuple[str, str]:
    return "augment.infill.model", config.infill.model or teacher


def _prepare(job: Preparation) -> None:
    from distillkit.augment.infill import prepare_infill

    folder, options = job.folder / "infill", job.options
    if not folder.is_dir():
        model, config = options.models.of["infill"], options.config.infill
        prepare_infill(model, job.texts, config, options.seed, folder)


def _variation(lexicon: Lexicon, config: AugmentConfig, folder: Path) -> Variation:
    from distillkit.augment.infill import Infill

    return Infill(lexicon, config.infill, folder / "infill")


INFILL = Method(
    "infill",
    "Words masked and filled in by a masked language model (Jiao et al. 2020).",
    variation=_variation,
    model=_model,
    holds_model=True,
    prepare=_prepare,
)

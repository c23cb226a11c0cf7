"""What a server needs: a bundle's answers by ONNX Runtime, without torch and transformers.

`pip install 'distillkit[runtime]'` has what this needs; `distillkit export` writes bundles.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distillkit.runtime.predictor import Predictor as Predictor

__all__ = ["Predictor"]


def __getattr__(name: str) -> Any:
    # Found on first use: what a bundle is can be asked without ONNX Runtime.
    if name != "Predictor":
        raise AttributeError(f"module 'distillkit.runtime' has no attribute {name!r}")
    try:
        from distillkit.runtime.predictor import Predictor
    except ModuleNotFoundError as error:
        hint = f"the predictor needs {error.name}: pip install 'distillkit[runtime]'"
        raise ModuleNotFoundError(hint, name=error.name) from None
    return Predictor

"""What `mkdocs build` asks for: the repository's pages where they lie, and the reference.

The pages keep their paths, so that their links work on the site as they do in the repository.
"""

import contextlib
import dataclasses
import io
from collections.abc import Iterator
from pathlib import Path

import griffe
import messages
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from distillkit import cli, pipeline
from distillkit.recipe import Recipe

ROOT = Path(__file__).parent.parent
PAGES = [
    "*.md",
    "docs/*.md",
    "docs/pictures/*",
    "docs/notebooks/*",
    "*/README.md",
    "benchmarks/*.md",
    "distillkit/data/embedded/README.md",
]
NAMES = [
    "distillkit.api",
    "distillkit.augment.augmenter.Augmenter",
    "distillkit.loss",
    "distillkit.training.lamb.Lamb",
    "distillkit.runtime.Predictor",
]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replace what lies in docs/ by the repository's pages and the reference."""
    found = Files([file for file in files if file.src_dir != config.docs_dir])
    for path in sorted({path for pattern in PAGES for path in ROOT.glob(pattern)}):
        name = path.relative_to(ROOT).as_posix()
        found.append(File(name, str(ROOT), config.site_dir, config.use_directory_urls))
    names = [*NAMES, *(f"distillkit.pipeline.{name}" for name in pipeline.__all__)]
    for name, content in [
        ("commands", _commands()),
        ("recipe", "\n".join(["# Recipe keys", "", *_keys(Recipe(), "")])),
        ("errors", messages.page()),
        ("python", "\n\n".join(["# Python names", *(f"::: {name}" for name in names)])),
    ]:
        found.append(File.generated(config, f"docs/reference/{name}.md", content=content))
    return found


def _keys(section: object, path: str) -> Iterator[str]:
    """Yield a table of a section's keys, with default and help, then those of its sections."""
    kind = type(section)
    described = griffe.load(f"{kind.__module__}.{kind.__name__}")
    fields = {field.name: getattr(section, field.name) for field in dataclasses.fields(section)}
    inner = {name: value for name, value in fields.items() if dataclasses.is_dataclass(value)}
    if path:
        yield from (f"## {path}", "", described.docstring.value if described.docstring else "", "")
    yield from ("| key | default | help |", "|---|---|---|")
    for name in [name for name in fields if name not in inner]:
        text = described.members[name].docstring
        told = " ".join(text.value.split()).replace("|", "\\|") if text else ""
        yield f"| `{name}` | `{fields[name]!r}` | {told} |"
    yield ""
    for name, value in inner.items():
        yield from _keys(value, f"{path}.{name}" if path else name)


def _commands() -> str:
    """Return every command's help with all settings."""
    parts = ["# Options", "What `distillkit COMMAND --help-all` prints."]
    for name in cli.COMMANDS:
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
            cli.parse(name, ["--help-all"])
        parts.append(f"## {name}\n\n```text\n{said.getvalue().strip()}\n```")
    return "\n\n".join(parts)

"""Shipped YAML is found by name or by path, and every shelf file loads."""

import pytest

from distillkit import shelf
from distillkit.errors import InputError
from distillkit.recipe import Recipe, StudentConfig, TeacherConfig, load_config, load_recipe

DEFAULTS = {"recipes": Recipe(), "teachers": TeacherConfig(), "students": StudentConfig()}
SHIPPED = [(name, path) for name in shelf.SHELVES for path in shelf.entries(name).values()]


@pytest.mark.parametrize("name", shelf.SHELVES)
def test_no_shelf_is_empty(name):
    assert shelf.entries(name)


@pytest.mark.parametrize(
    ("name", "path"), SHIPPED, ids=[f"{name}/{path.stem}" for name, path in SHIPPED]
)
def test_shipped_file_loads(name, path):
    assert type(load_config(name, path.stem, DEFAULTS[name])) is type(DEFAULTS[name])


@pytest.mark.parametrize("name", shelf.entries("recipes"))
def test_shipped_recipe_gives_pairs_to_a_student_that_reads_pairs(name):
    recipe = load_recipe(name)
    recipe.student.check_fits(pairs=bool(recipe.data.columns.text_pair), source=name)


@pytest.mark.parametrize(
    ("name", "path"), SHIPPED, ids=[f"{name}/{path.stem}" for name, path in SHIPPED]
)
def test_shipped_file_says_in_its_first_line_what_it_is(name, path):
    assert path.read_text(encoding="utf-8").startswith("# " + shelf.description(path))
    assert len(shelf.description(path)) > 20


def test_shelves_hold_no_yaml_that_the_glob_misses():
    root = shelf.entries("recipes")["quickstart"].parent.parent
    files = {path for name in shelf.SHELVES for path in (root / name).rglob("*.y*ml")}
    assert files == {path for _, path in SHIPPED}


@pytest.mark.parametrize("name", shelf.SHELVES)
def test_entries_are_sorted_by_name(name):
    names = list(shelf.entries(name))
    assert names == sorted(names)


def test_name_finds_the_shipped_file():
    assert shelf.find("students", "bilstm") == shelf.entries("students")["bilstm"]


@pytest.mark.parametrize("ending", ["yaml", "yml"])
def test_path_finds_the_users_own_file(tmp_path, ending):
    path = tmp_path / f"mine.{ending}"
    path.write_text("seed: 2\n")
    assert shelf.find("recipes", str(path)) == path


def test_unknown_name_gets_the_nearest_and_the_list():
    with pytest.raises(
        InputError, match=r"'bilsmt' is not on the shelf students/: did you mean 'bilstm'\?"
    ) as caught:
        shelf.find("students", "bilsmt")
    assert all(
        name in str(caught.value).partition("it holds")[2] for name in shelf.entries("students")
    )


def test_a_runs_folder_in_place_of_a_recipe_is_told_its_recipe(tmp_path):
    with pytest.raises(InputError, match=r"a folder; expected a recipe, or a file of labelled"):
        shelf.find("recipes", str(tmp_path))
    (tmp_path / "recipe.yaml").touch()
    with pytest.raises(InputError, match=r"a run's folder; its recipe is .*/recipe\.yaml"):
        shelf.find("recipes", str(tmp_path))


def test_name_like_nothing_gets_the_list_alone():
    with pytest.raises(InputError) as caught:
        shelf.find("students", "zzz")
    assert "did you mean" not in str(caught.value)
    assert "it holds bilstm" in str(caught.value)


def test_absent_path_is_said_as_it_was_given(tmp_path):
    with pytest.raises(InputError, match=r"gone\.yaml: no such file$"):
        shelf.find("recipes", str(tmp_path / "gone.yaml"))

"""One file a kind of student; `distillkit.recipe.kinds` finds them."""

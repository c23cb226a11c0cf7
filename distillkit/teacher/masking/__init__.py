"""One file a masking strategy; `distillkit.recipe.maskings` finds them, `teacher.masker` applies them."""

"""One file a masking strategy; `recipe.maskings` finds them, `teacher.masker` applies them."""

"""The doctor: what is wrong with a recipe's data and teacher, in minutes, before hours are spent; a file a group of checks."""

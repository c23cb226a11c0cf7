"""The doctor: what is wrong with a recipe's data and teacher. One file a group of checks."""

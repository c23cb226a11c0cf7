"""The transfer set: the three rules of Tang et al. 2019, the taggers they need, duplicates and leaks left out."""

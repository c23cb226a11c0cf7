"""The transfer set: the three rules of Tang et al. 2019, their taggers, and other methods."""

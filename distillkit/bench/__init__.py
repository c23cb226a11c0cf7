"""`distillkit bench`: what each form of a model costs to serve, beside its teacher."""

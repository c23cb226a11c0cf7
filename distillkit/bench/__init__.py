"""`distillkit bench`: what a model costs to serve, in each form that it can be served in, beside its teacher."""

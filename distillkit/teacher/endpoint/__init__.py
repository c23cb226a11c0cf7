"""A model service as the teacher: prompts, calls, answers, what is asked already, and the budget."""

"""Students: Hugging Face models with tokenizers of their own."""

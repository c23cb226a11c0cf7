"""The teacher: find a checkpoint, fine-tune it, let it label, ask it for word vectors."""

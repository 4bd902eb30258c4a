"""Which sources hash the same prompts alike."""

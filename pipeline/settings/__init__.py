"""Settings: loading in layers, validation as a whole."""

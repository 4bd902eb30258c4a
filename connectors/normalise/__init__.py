"""An engine's payload in, a normalised batch out."""

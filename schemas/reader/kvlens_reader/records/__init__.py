"""Records as kvlens defines them; copies."""

"""Where the sources come from."""

"""Which sources to read: from settings, names, and engines that connect."""

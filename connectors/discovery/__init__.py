"""Which sources to read: from settings, DNS names, pods, and engines that connect."""

"""A fleet of simulated engines that publish real wire bytes and know the truth about themselves."""

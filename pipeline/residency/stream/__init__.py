"""What a source's stream says of itself: how well it fares, how it is reached, how complete it is."""

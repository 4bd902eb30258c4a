"""What clients ask of a simulated fleet, and when something happens to it."""

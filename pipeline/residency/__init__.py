"""What is resident where: pure state of the replica agent, from normalised events to rows."""

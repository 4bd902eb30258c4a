"""How Faust consumes for the agents: its transport, its login, and its group memberships."""

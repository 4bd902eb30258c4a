"""The same traffic under other conditions, and what the fleet's figures had promised; pure."""

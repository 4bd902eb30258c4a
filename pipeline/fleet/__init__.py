"""The fleet agent's pure part: who holds what, who lost what, and why blocks are filled."""

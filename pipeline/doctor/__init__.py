"""`kvlens doctor`: looks at a running fleet and says what is wrong and what to do."""

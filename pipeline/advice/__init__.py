"""What to do, and what it is worth: the views `answer` and `advice`, read and shown in a terminal."""

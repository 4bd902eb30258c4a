"""What prefill cost and what caches saved, counted again from the rows behind the views."""

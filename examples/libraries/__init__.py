"""Programs that use other people's libraries, as their own tutorials would write them."""

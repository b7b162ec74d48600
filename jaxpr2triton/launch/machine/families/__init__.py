"""What each arithmetic instruction of PTX computes in one lane, family by family."""

"""What the tests share: cases, checks that the mutation run calls too, damaged files, and the commands as processes."""

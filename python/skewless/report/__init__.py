"""What people see: records of what happened, as status text, as a page, as plots. Knows facts only, no
loop."""

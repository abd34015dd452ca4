"""`python -m skewless`: the same as the command `skewless`."""

from skewless.cli import main

if __name__ == "__main__":
    main()

"""`python -m maskcon`: the command line."""

from maskcon.cli import main

if __name__ == "__main__":
    main()

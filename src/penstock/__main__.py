"""`python -m penstock`: the same as `penstock`, in an interpreter of one's choice."""

from penstock.cli import main

if __name__ == "__main__":
    main()

"""`python -m privet` is `privet`."""

from privet.cli import console

if __name__ == "__main__":
    console()
